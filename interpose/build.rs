//! How the preload library is linked.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // Our references to our own exports are to ours, whoever defines the name before us: what
    // `api` hands out as the hook would otherwise be another interposer's function.
    // All exports are functions, so that -Bsymbolic, which more linkers know, is the same as
    // -Bsymbolic-functions.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-Bsymbolic");
}
