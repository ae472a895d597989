//! Names the library, and writes the callback ids of CUPTI's driver domain as one constant per driver
//! function.

use std::{env, error::Error, fs, path::Path};

const CALLBACK_IDS: &str = "../../cupti-sys/facts/driver_cbids.txt";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcuda.so.1");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed={CALLBACK_IDS}");
    let table = fs::read_to_string(CALLBACK_IDS)?;
    let rows = table.lines().filter(|line| !line.starts_with('#')).filter_map(|line| line.split_once(' '));
    let constants: String =
        rows.map(|(number, symbol)| format!("pub const {symbol}: u32 = {number};\n")).collect();
    fs::write(Path::new(&env::var("OUT_DIR")?).join("cbid.rs"), constants)?;
    Ok(())
}
