"use strict";
(() => {
  const { looks, figures } = JSON.parse(document.getElementById("data").textContent);
  const dark = matchMedia("(prefers-color-scheme: dark)");
  let printing = false;

  // Plotly reads some HTML in texts; a name is only text.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const theme = () => dark.matches && !printing
    ? { ink: "#e6e8eb", grid: "#3b434c", panel: "#1f2429", better: "#6db9ee", worse: "#f59a5b", equivalent: "#52cfa5", other: "#a9b1bb" }
    : { ink: "#1d2126", grid: "#e1e5ea", panel: "#eef1f4", better: "#0072b2", worse: "#d55e00", equivalent: "#009e73", other: "#555c66" };
  const color = (arm) => looks[arm].color === "#000000" ? theme().ink : looks[arm].color;
  const pattern = (text) => text.split(" ").filter(Boolean).map((n) => `${n}px`).join(",") || "solid";
  const dash = (arm) => pattern(looks[arm].dash);
  const faded = (hex, share) => hex + Math.round(255 * share).toString(16).padStart(2, "0");

  function layout(width, height, more) {
    const { ink, grid, panel } = theme();
    const axis = { gridcolor: grid, zerolinecolor: grid, linecolor: grid, automargin: true, color: ink };
    return {
      width, height, showlegend: false, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: { color: ink, family: "system-ui, sans-serif", size: 13 }, hoverlabel: { bgcolor: panel, font: { color: ink } },
      ...more, xaxis: { ...axis, ...more.xaxis }, yaxis: { ...axis, ...more.yaxis },
    };
  }

  const line = (arm, x, y, more) => ({
    x, y, mode: "lines+markers", text: plain(arm), hovertemplate: "%{text}<br>%{x}: %{y:.4f}<extra></extra>",
    line: { color: color(arm), dash: dash(arm), width: 2 },
    marker: { color: color(arm), symbol: looks[arm].mark, size: 7, maxdisplayed: 8 }, ...more,
  });

  // The limits of what comes after the first quarter, which would flatten it.
  function focus(shown, logx, logy) {
    const known = shown.some((one) => one.trusted) ? shown.filter((one) => one.trusted) : shown;
    const end = Math.max(...shown.map((one) => one.x[one.x.length - 1]));
    const low = [], high = [], first = [];
    for (const { x, y, sd } of known) {
      x.forEach((at, i) => {
        if (at >= end / 4) { low.push(y[i] - (sd ? sd[i] : 0)); high.push(y[i] + (sd ? sd[i] : 0)); first.push(at); }
      });
    }
    if (!low.length) return {};
    const range = (from, to, log, room) => {
      const [a, b] = log ? [Math.log10(Math.max(from, to * 1e-6)), Math.log10(to)] : [from, to];
      const more = room * (b - a) || 0.05 * Math.abs(b) || 1;
      return [a - more, b + more];
    };
    return {
      x: range(Math.min(...first), end, logx, 0.02),
      y: range(Math.min(...low), Math.max(...high), logy, 0.06),
    };
  }

  function curves(fig, width) {
    const form = new FormData(document.getElementById("controls"));
    const [measure, axis, logx, logy] = ["measure", "axis", "logx", "logy"].map((name) => form.get(name));
    const on = [...document.querySelectorAll("#toggles input:checked")].map((box) => fig.arms[box.value]);
    const shown = on.filter((one) => one.lines[measure] && one.scales[axis]).map((one) => {
      const { x, y, sd } = one.lines[measure];
      return { arm: one.arm, trusted: one.trusted, x: x.map((step) => step * one.scales[axis]), y, sd };
    });
    const bands = shown.filter((one) => one.sd && form.get("band")).map(({ arm, x, y, sd }) => ({
      x: [...x, ...[...x].reverse()],
      y: [...y.map((v, i) => v + sd[i]), ...y.map((v, i) => v - sd[i]).reverse()],
      fill: "toself", fillcolor: faded(color(arm), 0.16), line: { width: 0 }, mode: "lines", hoverinfo: "skip",
    }));
    const limits = form.get("late") && shown.length ? focus(shown, logx, logy) : {};
    return [
      [...bands, ...shown.map(({ arm, x, y }) => line(arm, x, y))],
      layout(width, width < 600 ? 340 : 460, {
        margin: { l: 50, r: 12, t: 10, b: 40 },
        xaxis: { title: { text: fig.axes[axis] }, type: logx ? "log" : "linear", range: limits.x },
        yaxis: { title: { text: fig.measures[measure] }, type: logy ? "log" : "linear", range: limits.y },
      }),
    ];
  }

  const SYMBOLS = { better: "triangle-left", worse: "triangle-right", equivalent: "square", other: "circle-open" };

  function intervals(fig, width) {
    const narrow = width < 600, tall = narrow ? 44 : 28, { ink, panel } = theme();
    const rows = fig.rows.map((row, i) => ({ ...row, at: fig.rows.length - i }));
    const cut = (text) => plain(text.length > 44 ? `${text.slice(0, 41)}...` : text);
    const beside = { xref: "paper", yref: "y", showarrow: false, xanchor: "left", font: { size: 12 } };
    const notes = rows.map((row) => narrow
      ? { ...beside, x: 0, y: row.at + 0.36, text: `${cut(row.label)}: ${plain(row.word)}`, bgcolor: "rgba(0,0,0,0)" }
      : { ...beside, x: 1.01, y: row.at, text: `${row.numbers}  ${cut(row.word)}` });
    const traces = Object.keys(SYMBOLS).map((kind) => {
      const own = rows.filter((row) => row.kind === kind);
      const minus = own.map((row) => (row.low === null ? 0 : row.mean - row.low));
      return {
        x: own.map((row) => row.mean), y: own.map((row) => row.at), mode: "markers",
        text: own.map((row) => `${plain(row.label)}<br>${row.numbers}<br>${plain(row.word)}`), hovertemplate: "%{text}<extra></extra>",
        marker: { symbol: SYMBOLS[kind], size: 11, color: theme()[kind] },
        error_x: { type: "data", array: own.map((row) => (row.high === null ? 0 : row.high - row.mean)), arrayminus: minus, color: theme()[kind], thickness: 2, width: 4 },
      };
    });
    const band = fig.margin === null ? [] : [{ type: "rect", yref: "paper", y0: 0, y1: 1, x0: -fig.margin, x1: fig.margin, fillcolor: panel, line: { width: 0 }, layer: "below" }];
    return [traces, layout(width, 90 + tall * rows.length, {
      annotations: notes, hovermode: "closest",
      shapes: [...band, { type: "line", yref: "paper", y0: 0, y1: 1, x0: 0, x1: 0, line: { color: ink, width: 1 } }],
      margin: narrow ? { l: 8, r: 8, t: 10, b: 40 } : { l: 20, r: 310, t: 10, b: 40 },
      xaxis: { title: { text: cut(fig.title), font: { size: 12 } }, nticks: narrow ? 4 : 8, zeroline: false },
      yaxis: { range: [0.4, rows.length + 0.7], showgrid: false, zeroline: false, fixedrange: true,
        tickvals: narrow ? [] : rows.map((row) => row.at), ticktext: rows.map((row) => cut(row.label)) },
    })];
  }

  function ladder(fig, width) {
    const narrow = width < 600;
    const hue = (one) => one.color === "#000000" ? theme().ink : one.color;
    const traces = fig.lines.map((one) => ({
      x: fig.x, y: one.y, mode: "lines+markers", name: plain(one.label), hovertemplate: "%{y:+.4f}",
      line: { color: hue(one), dash: pattern(one.dash), width: 2 }, marker: { color: hue(one), symbol: one.mark, size: 8 },
      error_y: { type: "data", array: one.reach, color: hue(one), thickness: 1.5, width: 4 },
    }));
    return [traces, layout(width, 420 + 20 * fig.lines.length, {
      margin: { l: 50, r: narrow ? 32 : 12, t: 10, b: 40 }, showlegend: true, hovermode: "x unified",
      legend: { orientation: "h", y: -0.2, yanchor: "top" },
      shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: 0, y1: 0, line: { color: theme().ink, width: 1 } }],
      xaxis: { type: "log", tickvals: fig.x, 
        ticktext: fig.ticks.map((text) => text.split("\n").slice(0, narrow ? 1 : 2).map(plain).join("<br>")) },
      yaxis: { title: { text: fig.title } },
    })];
  }

  function sensitivity(fig, width) {
    const traces = fig.arms.map(({ arm, x, y, chosen }) => line(arm, x, y, {
      marker: { color: color(arm), symbol: looks[arm].mark, size: x.map((value) => (value === chosen ? 14 : 7)), opacity: 1, line: { width: 0 } },
    }));
    const values = [...new Set(fig.arms.flatMap(({ x }) => x))];
    return [traces, layout(width, 400, {
      margin: { l: 50, r: 12, t: 10, b: 40 },
      xaxis: { title: { text: plain(fig.key) }, type: Math.min(...values) > 0 ? "log" : "linear", tickvals: values, ticktext: values.map(String) },
      yaxis: { title: { text: fig.title } },
    })];
  }

  function layers(fig, width) {
    const statistic = document.querySelector("[name=statistic]").value;
    const known = fig.arms.filter((one) => one.lines[statistic]);
    return [known.map(({ arm, lines }) => line(arm, lines[statistic].x, lines[statistic].y, {})), layout(width, 380, {
      margin: { l: 50, r: 12, t: 10, b: 40 },
      xaxis: { title: { text: "part of the model" }, type: "category" },
      yaxis: { title: { text: statistic } },
    })];
  }

  const makers = { curves, layers, forest: intervals, effects: intervals, ladder, sensitivity };
  const plots = [...document.querySelectorAll(".plot")];
  makers.contexts = sensitivity;
  function draw(plot) {
    const name = plot.dataset.figure;
    const width = printing ? 680 : plot.clientWidth;
    return Plotly.react(plot, ...makers[name](figures[name], width), { displayModeBar: false });
  }
  const drawAll = () => plots.forEach(draw);
  const redraw = (name) => plots.filter((plot) => plot.dataset.figure === name).forEach(draw);

  function sort(button) {
    const head = button.closest("th"), body = head.closest("table").tBodies[0];
    const at = head.cellIndex, down = head.getAttribute("aria-sort") === "ascending";
    for (const other of head.parentElement.cells) other.setAttribute("aria-sort", "none");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const value = (row) => row.cells[at].dataset.value;
    const order = (a, b) => {
      const numbers = [Number(a), Number(b)], isText = numbers.map(Number.isNaN);
      // What is no number comes last either way.
      if (isText[0] !== isText[1]) return isText[0] ? 1 : -1;
      return (down ? -1 : 1) * (isText[0] ? a.localeCompare(b) : numbers[0] - numbers[1]);
    };
    body.append(...[...body.rows].sort((a, b) => order(value(a), value(b))));
  }

  async function copy(button) {
    const code = button.previousElementSibling.querySelector("code");
    let said = "Copied.";
    try {
      await navigator.clipboard.writeText(code.textContent);
    } catch {
      getSelection().selectAllChildren(code);
      said = "The command is selected; copy it from there.";
    }
    document.getElementById("copied").textContent = said;
  }

  document.addEventListener("click", ({ target }) => {
    if (target.matches("th button")) sort(target);
    if (target.closest(".copy")) copy(target.closest(".copy"));
    if (target.matches("[data-all]")) {
      for (const box of document.querySelectorAll("#toggles input")) box.checked = Boolean(target.dataset.all);
      redraw("curves");
    }
  });
  document.addEventListener("change", ({ target }) => redraw(target.name === "statistic" ? "layers" : "curves"));
  dark.addEventListener("change", drawAll);
  let later;
  addEventListener("resize", () => { clearTimeout(later); later = setTimeout(drawAll, 150); });
  addEventListener("beforeprint", () => { printing = true; drawAll(); });
  addEventListener("afterprint", () => { printing = false; drawAll(); });
  // One task each, so that a click need not wait for all of them.
  plots.forEach((plot) => setTimeout(() => draw(plot)));
})();
