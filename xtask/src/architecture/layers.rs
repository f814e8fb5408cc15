//! The crates, from the bottom up, and which of the others each may depend on.

/// A crate of ours and the crates of ours that it may depend on.
pub(super) struct Layer {
    pub(super) name: &'static str,
    /// Without async runtime, client, database or HTTP in the graph, and with pure crates only below it.
    pub(super) pure: bool,
    pub(super) may_use: &'static [&'static str],
}

pub(super) const fn pure(name: &'static str, may_use: &'static [&'static str]) -> Layer {
    Layer { name, pure: true, may_use }
}

pub(super) const fn layer(name: &'static str, may_use: &'static [&'static str]) -> Layer {
    Layer { name, pure: false, may_use }
}

/// The workspace, from the bottom up: a crate may use only crates above it in this list.
pub(super) const LAYERS: [Layer; 29] = [
    pure("coppice-mutants", &[]),
    pure("coppice-quantity", &["coppice-mutants"]),
    pure("coppice-api", &["coppice-quantity"]),
    // Kinds that only one program has, which is installed where it is wanted.
    pure("coppice-clusters-api", &["coppice-api", "coppice-quantity"]),
    pure("coppice-clusters", &["coppice-api", "coppice-clusters-api", "coppice-mutants"]),
    pure("coppice-destination", &[]),
    pure("coppice-lifecycle", &["coppice-api", "coppice-destination", "coppice-mutants", "coppice-quantity"]),
    pure("coppice-hierarchy", &["coppice-api", "coppice-lifecycle", "coppice-mutants", "coppice-quantity"]),
    pure("coppice-messages", &["coppice-api", "coppice-lifecycle"]),
    pure("coppice-schema", &[]),
    // Knows no domain: what is watched, decided and done is above it.
    layer("coppice-runtime", &["coppice-api", "coppice-mutants", "coppice-quantity"]),
    layer("coppice-serve", &["coppice-api", "coppice-runtime"]),
    // For tests alone.
    layer("coppice-scripted", &["coppice-runtime"]),
    layer("coppice-kinds", &["coppice-api", "coppice-hierarchy", "coppice-lifecycle", "coppice-runtime"]),
    layer("coppice-notify", &["coppice-api", "coppice-destination"]),
    layer(
        "coppice-actions",
        &[
            "coppice-api",
            "coppice-destination",
            "coppice-kinds",
            "coppice-lifecycle",
            "coppice-mutants",
            "coppice-notify",
            "coppice-quantity",
            "coppice-runtime",
        ],
    ),
    layer(
        "coppice-controllers",
        &[
            "coppice-actions",
            "coppice-api",
            "coppice-destination",
            "coppice-kinds",
            "coppice-lifecycle",
            "coppice-messages",
            "coppice-mutants",
            "coppice-notify",
            "coppice-quantity",
            "coppice-runtime",
        ],
    ),
    layer(
        "coppice-trees",
        &[
            "coppice-actions",
            "coppice-api",
            "coppice-controllers",
            "coppice-hierarchy",
            "coppice-kinds",
            "coppice-lifecycle",
            "coppice-mutants",
            "coppice-quantity",
            "coppice-runtime",
        ],
    ),
    layer(
        "coppice-operator",
        &[
            "coppice-api",
            "coppice-controllers",
            "coppice-lifecycle",
            "coppice-notify",
            "coppice-quantity",
            "coppice-runtime",
            "coppice-serve",
            "coppice-trees",
        ],
    ),
    // The program that may read Secrets of others: it has nothing of what deletes namespaces.
    layer(
        "coppice-access",
        &[
            "coppice-api",
            "coppice-clusters",
            "coppice-clusters-api",
            "coppice-mutants",
            "coppice-quantity",
            "coppice-runtime",
            "coppice-serve",
        ],
    ),
    // The simulator runs the real operator.
    layer(
        "coppice-sim",
        &[
            "coppice-api",
            "coppice-controllers",
            "coppice-mutants",
            "coppice-notify",
            "coppice-operator",
            "coppice-quantity",
            "coppice-runtime",
            "coppice-schema",
        ],
    ),
    layer(
        "coppice-cli",
        &[
            "coppice-api",
            "coppice-clusters",
            "coppice-clusters-api",
            "coppice-destination",
            "coppice-hierarchy",
            "coppice-lifecycle",
            "coppice-messages",
            "coppice-quantity",
            "coppice-schema",
            "coppice-sim",
        ],
    ),
    layer("coppice-plane", &[]),
    layer(
        "xtask",
        &[
            "coppice-access",
            "coppice-api",
            "coppice-cli",
            "coppice-clusters-api",
            "coppice-controllers",
            "coppice-lifecycle",
            "coppice-messages",
            "coppice-plane",
            "coppice-runtime",
            "coppice-serve",
            "coppice-trees",
        ],
    ),
    // What checks the rest, in verification/, from here on.
    // To be copied: what a controller may use.
    layer(
        "coppice-sample",
        &[
            "coppice-actions",
            "coppice-api",
            "coppice-controllers",
            "coppice-kinds",
            "coppice-lifecycle",
            "coppice-mutants",
            "coppice-quantity",
            "coppice-runtime",
            "coppice-serve",
        ],
    ),
    layer(
        "coppice-campaign",
        &[
            "coppice-access",
            "coppice-api",
            "coppice-clusters-api",
            "coppice-operator",
            "coppice-quantity",
            "coppice-runtime",
            "coppice-sample",
            "coppice-schema",
            "coppice-serve",
            "coppice-sim",
            "coppice-trees",
        ],
    ),
    layer("coppice-conformance", &["coppice-api", "coppice-runtime", "coppice-schema", "coppice-sim"]),
    // The end-to-end tests may use whatever they test.
    layer(
        "coppice-tests",
        &[
            "coppice-api",
            "coppice-cli",
            "coppice-conformance",
            "coppice-lifecycle",
            "coppice-notify",
            "coppice-plane",
            "coppice-quantity",
            "coppice-sample",
            "coppice-sim",
        ],
    ),
    // The benchmarks stand on what the tests stand on.
    layer(
        "coppice-bench",
        &["coppice-api", "coppice-lifecycle", "coppice-plane", "coppice-quantity", "coppice-tests"],
    ),
];
