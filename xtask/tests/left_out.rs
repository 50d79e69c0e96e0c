//! Says what a plain `cargo test` leaves out: it runs the members of the workspace that need no servers. Not a test, but
//! a program among them, since cargo shows what it prints.

use cargo_metadata::MetadataCommand;

const WORKSPACE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");

fn main() {
    let metadata =
        MetadataCommand::new().manifest_path(WORKSPACE).no_deps().exec().expect("cargo describes its workspace");
    let taken = &metadata.workspace_default_members;
    let members = metadata.workspace_packages().into_iter();
    let left_out: Vec<&str> =
        members.filter(|member| !taken.contains(&member.id)).map(|member| member.name.as_str()).collect();
    println!("\nLeft out by a plain `cargo test`, since they start servers, or build what reaches them:");
    println!("  {}", left_out.join(", "));
    println!("`cargo xtask test` installs the servers and runs everything.\n");
}
