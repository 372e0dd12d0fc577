//! Compiles `aten.cpp` against the LibTorch that torch-sys found, if the feature `tch` asks for it.

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
        .file("src/aten/aten.cpp")
        .compile("zoo_aten");
}
