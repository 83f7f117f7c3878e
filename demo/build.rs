//! Lists the files of `model/`, so that they are part of the program.
#![allow(clippy::print_stdout, reason = "how a build script talks to cargo")]

use std::fmt::Write as _;
use std::path::Path;
use std::{env, fs};

fn main() {
    let root = env::var("CARGO_MANIFEST_DIR").expect("cargo sets it");
    let model = Path::new(&root).join("model");
    println!("cargo::rerun-if-changed={}", model.display());
    let entries = fs::read_dir(&model).expect("model/ is part of the source");
    let mut names: Vec<String> = entries
        .map(|entry| {
            let name = entry.expect("a directory that can be read").file_name();
            name.into_string().expect("names are plain")
        })
        .collect();
    names.sort();
    let mut list = String::from("&[\n");
    for name in names {
        let path = model.join(&name);
        println!("cargo::rerun-if-changed={}", path.display());
        writeln!(
            list,
            "    File {{ name: {name:?}, bytes: include_bytes!({path:?}) }},"
        )
        .expect("writing to a string cannot fail");
    }
    list.push(']');
    let out = env::var("OUT_DIR").expect("cargo sets it");
    fs::write(Path::new(&out).join("files.rs"), list).expect("OUT_DIR can be written");
}
