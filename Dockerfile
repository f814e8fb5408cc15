# syntax=docker/dockerfile:1.7

FROM rust:1.95.0-slim-bookworm AS build
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry,sharing=locked \
    --mount=type=cache,target=/src/target,sharing=locked \
    cargo build --release --locked --package coppice-operator \
    && install -D --target-directory=/out target/release/coppice-operator

# With the C library and the authorities that webhooks are checked against; no shell, no package manager.
FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="coppice" \
      org.opencontainers.image.description="Deletes namespaces of a shared cluster on schedule, with notice and within a budget" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.url="https://coppice.dev"
COPY --from=build /out/coppice-operator /usr/local/bin/
COPY LICENSE /usr/share/doc/coppice/LICENSE
USER 65532:65532
EXPOSE 8080 8081
ENTRYPOINT ["/usr/local/bin/coppice-operator"]
