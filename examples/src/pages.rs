//! The Rust blocks of `README.md` and `docs/` as documentation tests, on `Device::default()`.

macro_rules! pages {
    ($($name:ident: $path:literal,)*) => {
        $(#[doc = include_str!(concat!("../../", $path))] mod $name {})*
    };
}

pages! {
    readme: "README.md",
    library: "docs/library.md",
    migrating: "docs/migrating.md",
    based: "docs/mechanisms/based.md",
    cosformer: "docs/mechanisms/cosformer.md",
    delta: "docs/mechanisms/delta.md",
    differential: "docs/mechanisms/differential.md",
    flash: "docs/mechanisms/flash.md",
    forgetting: "docs/mechanisms/forgetting.md",
    gated_linear: "docs/mechanisms/gated-linear.md",
    hard: "docs/mechanisms/hard.md",
    linear: "docs/mechanisms/linear.md",
    linformer: "docs/mechanisms/linformer.md",
    local: "docs/mechanisms/local.md",
    longformer: "docs/mechanisms/longformer.md",
    lsh: "docs/mechanisms/lsh.md",
    mla: "docs/mechanisms/mla.md",
    moba: "docs/mechanisms/moba.md",
    native_sparse: "docs/mechanisms/native-sparse.md",
    nystrom: "docs/mechanisms/nystrom.md",
    positions: "docs/theory/positions.md",
    relative: "docs/mechanisms/relative.md",
    retention: "docs/mechanisms/retention.md",
    scores: "docs/mechanisms/scores.md",
    shared_heads: "docs/mechanisms/shared-heads.md",
    sigmoid: "docs/mechanisms/sigmoid.md",
    sink: "docs/mechanisms/sink.md",
    strided: "docs/mechanisms/strided.md",
}
