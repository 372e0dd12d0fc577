//! Compiles `aten.cpp` against the LibTorch that torch-sys found.

use std::path::Path;

fn main() {
    if std::env::var_os("CARGO_FEATURE_DOC_ONLY").is_some() {
        return;
    }
    println!("cargo:rerun-if-changed=src/aten.cpp");
    println!("cargo:rerun-if-env-changed=LIBTORCH_CXX11_ABI");
    println!("cargo:rerun-if-env-changed=LIBTORCH_INCLUDE");
    // torch-sys tells where its libraries are; headers lie beside them, unless somebody
    // says otherwise, as to torch-sys.
    let libraries = std::env::var("DEP_TCH_LIBTORCH_LIB")
        .expect("torch-sys says where LibTorch's libraries are");
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
        .file("src/aten.cpp")
        .compile("zoo_aten");
}
