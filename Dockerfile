# docker build --tag lm_experiments .
# docker run --rm --volume "$PWD/runs:/lm_experiments/runs" lm_experiments
# docker run --rm lm_experiments make test
FROM python:3.11-slim

# The compiler is torch.compile's.
RUN apt-get update \
    && apt-get install --yes --no-install-recommends g++ make \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /lm_experiments

# What the environment is made of, so that other changes keep it.
COPY Makefile pyproject.toml constraints.txt setup.py MANIFEST.in README.md ./
COPY lm_experiments ./lm_experiments
COPY conf ./conf
RUN make .venv/installed

COPY . .
RUN touch .venv/installed

ENV PATH="/lm_experiments/.venv/bin:$PATH"
CMD ["make", "ablation"]
