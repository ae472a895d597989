fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcupti.so.13");
    println!("cargo:rerun-if-changed=build.rs");
}
