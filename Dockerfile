# CPU: docker build -t fedsol .    CUDA: docker build --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu126 -t fedsol .
# docker run --rm -v "$PWD/runs:/work/runs" fedsol run
FROM python:3.12-slim
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /source
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
# Of equal versions pip takes the one with a local part, such as 2.13.0+cpu.
RUN pip install --no-cache-dir --constraint constraints.txt --extra-index-url "$TORCH_INDEX" . \
    && useradd --create-home --uid 1000 fedsol && mkdir /work && chown fedsol /work
USER fedsol
WORKDIR /work
ENTRYPOINT ["fedsol"]
CMD ["--help"]
