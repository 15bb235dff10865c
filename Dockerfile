FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS build
# The CPU build: torch from the ordinary index brings several gigabytes of CUDA along. Everything else
# comes from the ordinary index, which alone has the locked versions; every file by its locked hash. What is worth
# compiling is compiled below (to pip, PIP_NO_COMPILE=1 means to compile).
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
ENV PIP_PYTHON=/venv/bin/python PIP_NO_CACHE_DIR=1 PIP_COMPILE=0 PYTHONDONTWRITEBYTECODE=1 \
    PIP_REQUIRE_HASHES=1 PIP_NO_DEPS=1 PIP_ONLY_BINARY=:all:
WORKDIR /lab
# Nothing asks for maps of the earth (pydeck) or for watched files (watchdog), though Streamlit's metadata name both; without hf-xet,
# models of the hub come by https.
# What else it installs: nothing, or EXTRAS=cluster for workers of a Dask cluster (deploy/corpus).
ARG EXTRAS=
COPY lock/run.txt lock/cpu.txt lock/cluster.txt lock/
RUN python -m venv --without-pip /venv \
 && pip install --index-url "$TORCH_INDEX" -r lock/cpu.txt \
 && pip install -r lock/run.txt \
 && for extra in $EXTRAS; do pip install -r "lock/$extra.txt" || exit 1; done \
 && pip uninstall --yes pydeck watchdog hf-xet
# Real models, by their hashes: none, minilm or all. What turns one of them into its folder is gone afterwards.
ARG MODELS=minilm
COPY .ci/get_models.py .ci/
COPY lock/models.txt lock/gguf.txt lock/
RUN mkdir /models && PYTHONPATH=/venv/lib/python3.11/site-packages python .ci/get_models.py "$MODELS" /models
# What nothing imports at run time: tests, headers and test programs, two clients of outside services,
# what widgets need in Jupyter, and what transformers' models were written from. torch asks for torch_shm_manager, so that one stays.
WORKDIR /venv/lib/python3.11/site-packages
RUN find torch/bin -type f ! -name torch_shm_manager -delete \
 && rm -rf torch/include torch/test torch/share torch/lib/*test*.so \
      pyarrow/include pyarrow/src pyarrow/tests pyarrow/*flight* pyarrow/*_s3* pyarrow/libarrow_python.so.*.* \
      pandas/tests matplotlib/tests matplotlib/mpl-data/sample_data \
      plotly/labextension plotly/package_data/widgetbundle.js \
      /venv/share /venv/etc \
 && find sympy mpl_toolkits -name tests -prune -exec rm -rf {} + \
 && find . \( -name '*.a' -o -name '*.pyx' -o -name '*.pxd' -o -name '*.pxi' -o -path './transformers/models/*/modular_*.py' \) -delete
WORKDIR /lab
COPY app.py LICENSE NOTICE.md ./
COPY attention attention
COPY pages pages
COPY .streamlit .streamlit
COPY deploy/front.py deploy/nginx.conf deploy/
# Bytecode of what may be imported, which with transformers is torch's compiler and the computer algebra too; of its 500
# models few.
RUN find . -name __pycache__ -prune -exec rm -rf {} + \
 && /venv/bin/python -m compileall -q --invalidation-mode unchecked-hash \
      -x '/(altair|networkx|pygments|sympy/(physics|stats)|torch/(_inductor/\w+|testing/_internal)|transformers/(cli|pipelines|models/(?!auto|bert/|llama)\w+))/' \
      /lab /venv/lib

FROM python:3.11-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b
# For tokens in exported figures: matplotlib's own fonts have no Chinese, Japanese, Korean, Hindi or Thai. nginx is what visitors
# reach, of its newest version, since Debian keeps none with a known fault. A volume at /heads takes the owner of that folder, for runs over many texts.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends \
      fonts-wqy-microhei=0.2.0-beta-3.1 fonts-freefont-ttf=20120503-10 nginx libnginx-mod-stream \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --system --uid 1000 --no-create-home lab \
 && install --directory --owner=1000 --group=1000 /heads
COPY --from=build /venv /venv
COPY --from=build /models /lab/models
COPY --from=build /lab /lab
WORKDIR /lab
USER 1000
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    MPLCONFIGDIR=/tmp/matplotlib \
    HF_HOME=/tmp/huggingface \
    STREAMLIT_SERVER_HEADLESS=true
EXPOSE 8501
# Any unknown path answers 200 with the page, so the body is compared.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "from urllib.request import urlopen; assert urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4).read() == b'ok'"]
CMD ["python", "deploy/front.py"]
