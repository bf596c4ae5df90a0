# Everyday commands; `just` lists them. Each is one line that can also be typed.

_list:
    @just --list

# exactly what must pass before a change lands
check:
    .ci/run

# every test; arguments go to cargo test: just test --test tools
test *arguments:
    scripts/test.sh {{arguments}}

# fuzz one decoder, for a minute unless told otherwise: just fuzz statsd 600
fuzz target seconds="60":
    cd protocols && cargo +nightly fuzz run {{target}} -- -max_total_time={{seconds}}

# benchmarks; arguments choose among them: just bench statsd
bench *arguments:
    cargo bench --workspace --locked -- {{arguments}}

# instructions of each step: just count aggregate/, just count --against before.md
count *arguments:
    scripts/count-instructions.sh {{arguments}}

# format, and let clippy mend what it can
fix:
    cargo fmt --all
    cargo clippy --workspace --all-targets --locked --fix --allow-dirty
