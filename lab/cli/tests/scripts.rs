//! Tests the scripts of the working tree, with a substitute for cargo.
#![cfg(unix)]

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The scripts build in `CARGO_TARGET_DIR` and look for results in it. The alias for simulations reports what it
/// builds.
#[test]
fn scripts_respect_the_target_directory() {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    if !root.join(".ci/run").exists() {
        return; // The crate was packaged, so there is no working tree.
    }
    assert!(!std::fs::read_to_string(root.join(".cargo/config.toml")).unwrap().contains("--quiet"));
    let folder = std::env::temp_dir().join(format!("archipelago-scripts-{}", std::process::id()));
    let script = |name: &str, text: &str| {
        let path = folder.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    };
    for name in [".ci/run", ".ci/package"] {
        script(name, &std::fs::read_to_string(root.join(name)).unwrap());
    }
    script("proof/mutants/run", "#!/bin/sh\n");
    // Finds the planted cycle, and no other.
    script(".ci/circles", "#!/bin/sh\n! grep -qs 'use crate::hydra::Hydra' \"$1/key/width.rs\"\n");
    script("lib/index/src/key/width.rs", "use std::fmt;\n");
    script("lib/key", "a key\n");
    script("lab/key", "another\n");
    script("docs/key", "a third\n");
    // A substitute for cargo: records its arguments, and makes the files that the scripts look for in the target
    // directory. Several of them run in parallel, so existing files stay unchanged.
    let cargo = r#"#!/bin/sh
echo "$@" >>"$NOTES"
mkdir -p "$CARGO_TARGET_DIR/debug" "$CARGO_TARGET_DIR/package"
[ -e "$CARGO_TARGET_DIR/debug/archipelago" ] || ln -s "$NOTES.d/program" "$CARGO_TARGET_DIR/debug/archipelago"
crate="$CARGO_TARGET_DIR/package/archipelago-0.crate"
[ -e "$crate" ] || { tar czf "$crate.$$" -C "$NOTES.d" a && mv "$crate.$$" "$crate"; }
"#;
    script("notes.d/program", "#!/bin/sh\ncat >/dev/null\n");
    script("bin/cargo", cargo);
    for name in ["Cargo.toml", "README.md", "LICENSE-APACHE", "LICENSE-MIT"] {
        script(&format!("notes.d/a/{name}"), "");
    }
    let (notes, elsewhere) = (folder.join("notes"), folder.join("elsewhere"));
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
    let mut run = Command::new(folder.join(".ci/run"));
    let output = run
        .stdin(Stdio::null())
        .env("PATH", path)
        .env("NOTES", &notes)
        .env("CARGO_TARGET_DIR", &elsewhere)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let notes = std::fs::read_to_string(&notes).unwrap();
    let named = notes.lines().filter_map(|line| line.split_once("--target-dir ")).map(|(_, rest)| rest);
    assert!(
        named.clone().count() > 3 && named.clone().all(|rest| rest.starts_with(elsewhere.to_str().unwrap())),
        "{notes}"
    );
    assert!(!folder.join("target").exists() && said.contains("archipelago-0.crate"), "{said}");
    std::fs::remove_dir_all(folder).unwrap();
}
