# The image of worker, beat, Flower and migrations. Servers are not in it: they are services.
FROM python:3.11-slim AS build
WORKDIR /src
RUN python -m venv /opt/rollcall
COPY requirements-image.lock ./
RUN /opt/rollcall/bin/pip install --no-cache-dir --require-hashes -r requirements-image.lock
COPY pyproject.toml README.md beat_schedule.py ./
COPY models models
COPY fsm fsm
COPY tasks tasks
COPY rollcall rollcall
RUN /opt/rollcall/bin/pip install --no-cache-dir --no-deps --no-build-isolation .

FROM python:3.11-slim
RUN useradd --system --uid 10001 --home-dir /nonexistent --shell /usr/sbin/nologin rollcall
COPY --from=build /opt/rollcall /opt/rollcall
ENV PATH=/opt/rollcall/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1
USER rollcall
WORKDIR /tmp
CMD ["rollcall", "--help"]
