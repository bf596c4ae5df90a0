# syntax=docker/dockerfile:1
# The gateway as an image: docker build -t pointsman .
#
# Checked by reading only: no container engine was at hand where this was written.

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY . .
# The caches live outside the image's layers, so the binary is copied out of them.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin pointsman \
    && cp target/release/pointsman /pointsman

FROM debian:bookworm-slim
# curl asks for the health, ca-certificates lets backends be reached by https.
RUN apt-get update \
    && apt-get install -y --no-install-recommends ca-certificates curl \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --home-dir /var/lib/pointsman --create-home pointsman
COPY --from=build /pointsman /usr/local/bin/pointsman
COPY config/docker.toml /etc/pointsman/pointsman.toml

USER pointsman
WORKDIR /var/lib/pointsman
# The embedded store and the spools: what must outlive the container.
VOLUME /var/lib/pointsman
# statsd, OpenTSDB, HTTP points, admin
EXPOSE 8125/udp 8125/tcp 4242/tcp 8080/tcp 9102/tcp
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 \
    CMD ["curl", "--fail", "--silent", "--show-error", "http://127.0.0.1:9102/-/healthy"]
ENTRYPOINT ["pointsman"]
CMD ["run", "--config", "/etc/pointsman/pointsman.toml"]
