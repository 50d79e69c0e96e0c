//! `TENURE_ETCD_BIN` points the etcd backends at another build.
#![cfg(feature = "etcd")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Command, Output};

use tenure_testkit::TempDir;

fn suite(etcd: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_conformance"))
        .args(["--backend", "etcd/single", "--filter", "lock/dropped-guard-frees"])
        .env("TENURE_ETCD_BIN", etcd)
        .env("TENURE_CONFORMANCE_REQUIRE", "all")
        .output()
        .unwrap()
}

#[test]
fn the_named_build_serves_and_no_other() {
    let folder = TempDir::new("other-etcd").unwrap();
    let (build, trace) = (folder.path().join("another"), folder.path().join("trace"));
    let etcd = std::env::var("TENURE_ETCD_BIN").unwrap_or_else(|_| String::from("etcd"));
    fs::write(&build, format!("#!/bin/sh\necho started >> '{}'\nexec '{etcd}' \"$@\"\n", trace.display())).unwrap();
    fs::set_permissions(&build, fs::Permissions::from_mode(0o755)).unwrap();
    let output = suite(&build);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(fs::read_to_string(trace).unwrap().contains("started"));

    let output = suite(&folder.path().join("nowhere"));
    assert!(!output.status.success(), "required, and not there");
    let said = [output.stdout, output.stderr].concat();
    assert!(String::from_utf8_lossy(&said).contains("TENURE_ETCD_BIN"), "{}", String::from_utf8_lossy(&said));
}
