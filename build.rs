//! Compiles the contract: one descriptor set for JSON, reflection and gateways, and the Rust code.

use std::error::Error;
use std::fmt::Write as _;
use std::path::PathBuf;

use prost_reflect::{DescriptorPool, EnumDescriptor, FieldDescriptor, Kind, MessageDescriptor};

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
    let descriptors = compiler.encode_file_descriptor_set();
    std::fs::write(out.join("a2ad.descriptor.bin"), &descriptors)?;
    if std::env::var_os("CARGO_FEATURE_SERVER").is_some() {
        json(&descriptors)?;
        std::fs::write(out.join("json.schema.rs"), schema(&compiler.descriptor_pool())?)?;
    }

    let mut code = tonic_prost_build::configure()
        .build_client(std::env::var_os("CARGO_FEATURE_CLIENT").is_some())
        .build_server(std::env::var_os("CARGO_FEATURE_SERVER").is_some())
        // The client stays generic over its transport.
        .build_transport(false)
        // An idle stream then costs a third of what it does with the usual one.
        .codec_path("crate::contract::codec::Codec")
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

/// Writes `lf.a2a.v1.serde.rs`: serde implementations for the contract's messages.
fn json(descriptors: &[u8]) -> std::io::Result<()> {
    pbjson_build::Builder::new()
        .register_descriptors(descriptors)?
        .extern_path(".google.protobuf", "crate::contract::wkt")
        .btree_map(["."])
        .ignore_unknown_fields()
        .build(&[".lf.a2a.v1"])
}

/// The tables by which `contract::json` reads and writes (its `schema.rs` has their types): every
/// message of the contract by its name, and the names that its enums know.
fn schema(pool: &DescriptorPool) -> Result<String, Box<dyn Error>> {
    let ours = |package: &str| package == "lf.a2a.v1";
    let mut messages: Vec<_> = pool.all_messages().filter(|m| ours(m.package_name())).collect();
    messages.retain(|message| !message.is_map_entry());
    messages.push(pool.get_message_by_name("google.protobuf.Empty").ok_or("no Empty")?);
    messages.sort_by(|a, b| a.full_name().cmp(b.full_name()));
    let mut code = String::new();
    let names: Vec<_> = messages.iter().map(|message| format!("&{}", constant(message))).collect();
    writeln!(code, "pub(super) static MESSAGES: &[&Message] = &[{}];", names.join(", "))?;
    for kind in pool.all_enums().filter(|kind| ours(kind.package_name())) {
        let values: Vec<_> = kind
            .values()
            .map(|value| format!("({:?}, {})", value.name(), value.number()))
            .collect();
        let name = enum_constant(&kind);
        writeln!(code, "static {name}: &[(&str, i32)] = &[{}];", values.join(", "))?;
    }
    for message in &messages {
        if message.fields().len() > 64 {
            return Err(format!("{}: more fields than bits", message.full_name()).into());
        }
        writeln!(code, "static {}: Message = Message {{", constant(message))?;
        writeln!(code, "    name: {:?},\n    fields: &[", message.full_name())?;
        // In the order of the file, in which they are written.
        for field in &message.descriptor_proto().field {
            let field = message.get_field_by_name(field.name()).ok_or("no such field")?;
            writeln!(code, "        {},", field_row(&field)?)?;
        }
        writeln!(code, "    ],\n}};")?;
    }
    Ok(code)
}

fn field_row(field: &FieldDescriptor) -> Result<String, Box<dyn Error>> {
    let kind = field.kind();
    let shape = match kind.as_message().filter(|_| field.is_map()) {
        Some(entry) => {
            if !matches!(entry.map_entry_key_field().kind(), Kind::String) {
                return Err(format!("{}: such keys have no JSON here", field.full_name()).into());
            }
            format!("Shape::Map({})", kind_of(&entry.map_entry_value_field())?)
        }
        None if field.is_list() => format!("Shape::Many({})", kind_of(field)?),
        None => format!("Shape::One({})", kind_of(field)?),
    };
    let group = field.containing_oneof().filter(|group| !group.is_synthetic());
    Ok(format!(
        "Field {{ name: {:?}, json: {:?}, shape: {shape}, required: {}, oneof: {:?} }}",
        field.name(),
        field.json_name(),
        is_required(field),
        group.map(|group| group.name().to_owned()).as_deref(),
    ))
}

#[expect(clippy::wildcard_enum_match_arm, reason = "a kind without a rule is refused")]
fn kind_of(field: &FieldDescriptor) -> Result<String, Box<dyn Error>> {
    Ok(match field.kind() {
        Kind::String => "Kind::Text".to_owned(),
        Kind::Bool => "Kind::Bool".to_owned(),
        Kind::Int32 => "Kind::Int32".to_owned(),
        Kind::Bytes => "Kind::Bytes".to_owned(),
        Kind::Enum(kind) => format!("Kind::Enum({})", enum_constant(&kind)),
        Kind::Message(message) => match message.full_name() {
            "google.protobuf.Timestamp" => "Kind::Time".to_owned(),
            "google.protobuf.Struct" => "Kind::Object".to_owned(),
            "google.protobuf.Value" => "Kind::Free".to_owned(),
            _ => format!("Kind::Message(&{})", constant(&message)),
        },
        // A field of another kind needs its rule in `contract::json` first.
        other => return Err(format!("{}: no JSON for {other:?}", field.full_name()).into()),
    })
}

fn is_required(field: &FieldDescriptor) -> bool {
    let pool = field.parent_pool();
    let Some(behavior) = pool.get_extension_by_name("google.api.field_behavior") else {
        return false;
    };
    // REQUIRED is number 2 of google.api.FieldBehavior.
    let options = field.options();
    options.get_extension(&behavior).as_list().is_some_and(|behaviors| {
        behaviors.iter().any(|behavior| behavior.as_enum_number() == Some(2))
    })
}

fn constant(message: &MessageDescriptor) -> String {
    format!("MESSAGE_{}", message.name().to_uppercase())
}

fn enum_constant(kind: &EnumDescriptor) -> String {
    format!("ENUM_{}", kind.name().to_uppercase())
}
