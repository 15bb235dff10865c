FROM python:3.11-slim-bookworm AS build
# The CPU build: torch from the ordinary index brings several gigabytes of CUDA along. What torch
# requires comes from the ordinary index, which alone has the locked versions.
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
WORKDIR /lab
COPY requirements.txt constraints.txt ./
RUN python -m venv /venv \
 && /venv/bin/pip install --no-cache-dir --no-deps --index-url "$TORCH_INDEX" "$(grep '^torch==' requirements.txt)" \
 && /venv/bin/pip install --no-cache-dir -c constraints.txt -r requirements.txt
COPY app.py ./
COPY attention attention
COPY pages pages
COPY .streamlit .streamlit
# The scripts that the server serves, so that nothing is written at run time.
RUN /venv/bin/python -c "from pages.ui.served import publish; publish()"

FROM python:3.11-slim-bookworm
RUN useradd --system --uid 1000 --no-create-home lab
COPY --from=build /venv /venv
COPY --from=build /lab /lab
WORKDIR /lab
USER lab
ENV PATH=/venv/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    STREAMLIT_SERVER_ADDRESS=0.0.0.0 \
    STREAMLIT_SERVER_HEADLESS=true \
    STREAMLIT_SERVER_FILE_WATCHER_TYPE=none \
    STREAMLIT_LOGGER_HIDE_WELCOME_MESSAGE=true
EXPOSE 8501
# Any unknown path answers 200 with the page, so the body is compared.
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "from urllib.request import urlopen; assert urlopen('http://127.0.0.1:8501/_stcore/health', timeout=4).read() == b'ok'"]
CMD ["streamlit", "run", "app.py"]
