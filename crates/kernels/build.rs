//! Compiles `aten.cpp` against the LibTorch of torch-sys if the feature `tch` is enabled.

fn main() {
    #[cfg(feature = "tch")]
    compile_bindings();
}

#[cfg(feature = "tch")]
fn compile_bindings() {
    use std::path::Path;

    println!("cargo:rerun-if-changed=src/aten/aten.cpp");
    println!("cargo:rerun-if-env-changed=LIBTORCH_CXX11_ABI");
    println!("cargo:rerun-if-env-changed=LIBTORCH_INCLUDE");
    // Headers are next to the libraries of torch-sys unless LIBTORCH_INCLUDE is set.
    let libraries =
        std::env::var("DEP_TCH_LIBTORCH_LIB").expect("torch-sys exports the library path");
    let headers = match std::env::var("LIBTORCH_INCLUDE") {
        Ok(folder) => Path::new(&folder).join("include"),
        Err(_) => Path::new(&libraries).join("../include"),
    };
    let abi = std::env::var("LIBTORCH_CXX11_ABI").unwrap_or_else(|_| "1".to_owned());
    cc::Build::new()
        .cpp(true)
        .pic(true)
        .warnings(false)
        .std("c++17")
        .include(&headers)
        .define("_GLIBCXX_USE_CXX11_ABI", abi.as_str())
        .file("src/aten/aten.cpp")
        .compile("zoo_aten");
}
