//! The planted bugs of `crates/sim/bugs` apply to the sources as they are. `scripts/simulate-bugs` checks that the
//! simulation finds them.

use std::fs::File;
use std::path::Path;
use std::process::Command;

#[test]
fn every_patch_applies() {
    let sim = Path::new(env!("CARGO_MANIFEST_DIR"));
    let entries = std::fs::read_dir(sim.join("bugs")).expect("the folder exists").flatten();
    let mut faults = Vec::new();
    for path in entries.map(|entry| entry.path()) {
        let output = Command::new("patch")
            .args(["--dry-run", "--force", "--fuzz", "0", "--strip", "1", "--directory"])
            .arg(sim.join("../.."))
            .stdin(File::open(&path).expect("patches can be read"))
            .output()
            .expect("the program patch is installed");
        if !output.status.success() {
            faults.push(format!("{}: {}", path.display(), String::from_utf8_lossy(&output.stdout)));
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}
