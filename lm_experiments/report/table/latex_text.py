r"""Text as pdflatex prints it: specials escaped, and letters that it does not have spelled out."""

from __future__ import annotations

import re
import unicodedata

_SPECIAL = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    **{character: f"\\{character}" for character in "&%$#_{}"},
    "×": r"$\times$",  # noqa: RUF001
    "±": r"$\pm$",
    "·": r"$\cdot$",
    "−": "$-$",  # noqa: RUF001
    "≤": r"$\le$",
    "≥": r"$\ge$",
    "≠": r"$\ne$",
    "≈": r"$\approx$",
    "→": r"$\to$",
    "←": r"$\gets$",
    "∞": r"$\infty$",
    "√": r"$\surd$",
    "–": "--",  # noqa: RUF001
    "—": "---",
    "…": r"\dots{}",
    "‘": "`",  # noqa: RUF001
    "’": "'",  # noqa: RUF001
    "“": "``",
    "”": "''",
}
_SIGNED = re.compile(r"(?<![\w.-])([+-])(?=\d)")
_GREEK = re.compile(r"GREEK (SMALL|CAPITAL) LETTER (FINAL )?(\w+)$")
# Greek capitals that look like Latin ones have no command of their own.
_LATIN = dict(zip("ΑΒΕΖΗΙΚΜΝΟΡΤΧ", "ABEZHIKMNOPTX", strict=True))  # noqa: RUF001
_COMMANDS = {"LAMDA": "lambda", "OMICRON": "o"}
# Up to here are the letters of Western and Central Europe, which LaTeX has.
_LAST_LATIN = 0x17F


def escape(text: str) -> str:
    """Text as LaTeX prints it, with specials escaped and signs of numbers set as minus signs."""
    plain = "".join(map(_set, " ".join(text.split())))
    return _SIGNED.sub(r"$\1$", plain)


def _set(character: str) -> str:
    if character in _SPECIAL:
        return _SPECIAL[character]
    if character.isascii() or (character.isalpha() and ord(character) <= _LAST_LATIN):
        return character
    if character in _LATIN:
        return f"$\\mathrm{{{_LATIN[character]}}}$"
    name = unicodedata.name(character, "")
    if found := _GREEK.match(name):
        command = _COMMANDS.get(found[3], found[3].lower())
        return f"${'' if command == 'o' else chr(92)}{_cased(command, found[1])}$"
    return _nearest(character)


def _cased(command: str, case: str) -> str:
    return command.capitalize() if case == "CAPITAL" else command


def _nearest(character: str) -> str:
    """The letters that a character is made of, else the number by which Unicode knows it."""
    plain = unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode()
    return "".join(_SPECIAL.get(c, c) for c in plain) or f"U+{ord(character):04X}"
