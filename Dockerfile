# docker build --build-arg TORCH_INDEX=ADDRESS -t fedsol .
# ADDRESS: PyTorch's index of CPU builds, or of builds for one CUDA version, from its installation page. Without it,
# the package index decides: on Linux a build with CUDA, which runs on a CPU too and is some gigabytes larger.
# docker run --rm -v "$PWD/runs:/work/runs" fedsol run
FROM python:3.12-slim
ARG TORCH_INDEX=""
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
# Of equal versions pip takes the one with a local part, such as 2.13.0+cpu.
RUN pip install --no-cache-dir --constraint constraints.txt ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} . \
    && useradd --create-home --uid 1000 fedsol && mkdir /work && chown fedsol /work
USER fedsol
WORKDIR /work
ENTRYPOINT ["fedsol"]
CMD ["--help"]
