//! Compiles the contract: one descriptor set for JSON, reflection and gateways, and the Rust code.

use std::error::Error;
use std::path::PathBuf;

const FILES: [&str; 4] = [
    "lf/a2a/v1/a2a.proto",
    "google/rpc/status.proto",
    "google/rpc/error_details.proto",
    "a2ad/page/v1/page_token.proto",
];

/// What `contract::wkt` defines in place of generated code.
const WELL_KNOWN: [&str; 6] = ["Empty", "ListValue", "NullValue", "Struct", "Timestamp", "Value"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);

    let mut compiler = protox::Compiler::new(["proto"])?;
    compiler.include_imports(true).include_source_info(false).open_files(FILES)?;
    // The bytes and not the typed set: only they keep the options of google.api.
    std::fs::write(out.join("a2ad.descriptor.bin"), compiler.encode_file_descriptor_set())?;

    let mut code = tonic_prost_build::configure()
        .build_client(std::env::var_os("CARGO_FEATURE_CLIENT").is_some())
        .build_server(std::env::var_os("CARGO_FEATURE_SERVER").is_some())
        // The client stays generic over its transport.
        .build_transport(false)
        .bytes(".")
        .btree_map(".")
        .emit_rerun_if_changed(false)
        // Else google.protobuf would be mapped twice.
        .compile_well_known_types(true);
    for name in WELL_KNOWN {
        let proto = format!(".google.protobuf.{name}");
        code = code.extern_path(proto, format!("crate::contract::wkt::{name}"));
    }
    // Here the comments count: they become the documentation of the generated types.
    code.compile_fds(compiler.include_source_info(true).file_descriptor_set())?;
    Ok(())
}
