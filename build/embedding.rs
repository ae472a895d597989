//! Puts the artifacts into OUT_DIR and writes `embedded.rs`, which includes their bytes.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use crate::artifacts::ARTIFACTS;
use crate::give_up;

pub fn write(folder: &Path, out: &Path) {
    let mut source = String::new();
    for artifact in &ARTIFACTS {
        let built = [artifact.built_as, artifact.name]
            .iter()
            .map(|name| folder.join(name))
            .find(|path| path.exists())
            .unwrap_or_else(|| give_up(&format!("{} is not in {}", artifact.built_as, folder.display())));
        let bytes = fs::read(&built)
            .unwrap_or_else(|error| give_up(&format!("cannot read {}: {error}", built.display())));
        let copy = out.join(artifact.name);
        fs::write(&copy, &bytes)
            .unwrap_or_else(|error| give_up(&format!("cannot write {}: {error}", copy.display())));
        let _ = writeln!(
            source,
            "pub static {}: Embedded = Embedded {{\n    name: {:?},\n    bytes: include_bytes!({:?}),\n    hash: {:#018x},\n}};",
            artifact.constant,
            artifact.name,
            copy,
            fnv1a(&bytes),
        );
    }
    let path = out.join("embedded.rs");
    fs::write(&path, source)
        .unwrap_or_else(|error| give_up(&format!("cannot write {}: {error}", path.display())));
}

/// Names a cache folder, nothing more: what is in the folder is compared byte by byte.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
