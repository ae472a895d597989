//! How the preload library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Binds our references to our own exports to ours, even if a library before us defines the name:
    // otherwise `api` would return another interposer's function as the hook. Not -Bsymbolic: it sets
    // DF_SYMBOLIC, and the loader then begins the default scope of look-ups from our code with our own
    // exports.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
}
