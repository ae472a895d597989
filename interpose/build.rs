//! How the preload library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Our references to our own exports are to ours, whoever defines the name before us: what
    // `api` hands out as the hook would otherwise be another interposer's function.
    // Not -Bsymbolic: that leaves a mark for the loader, which then begins the default scope of
    // what is asked from our frames with our own exports.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
