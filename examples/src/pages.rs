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
    flash: "docs/mechanisms/flash.md",
    hard: "docs/mechanisms/hard.md",
    linear: "docs/mechanisms/linear.md",
    local: "docs/mechanisms/local.md",
    longformer: "docs/mechanisms/longformer.md",
    lsh: "docs/mechanisms/lsh.md",
    retention: "docs/mechanisms/retention.md",
    scores: "docs/mechanisms/scores.md",
    shared_heads: "docs/mechanisms/shared-heads.md",
    strided: "docs/mechanisms/strided.md",
}
