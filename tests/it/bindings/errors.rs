//! Every error on every binding, in a file: code, status, reason, domain, metadata, violations.

use std::fmt::Write as _;
use std::path::Path;

use a2ad::bindings::json::{jsonrpc_error, rest_error};
use a2ad::bindings::{Failure, grpc};
use a2ad::contract::fault::{Fault, StatusTable};
use a2ad::domain::Error;
use serde_json::Value;
use tonic::Code;

use crate::bindings::caller::{ROWS, Told};
use crate::faults;

/// One error: its codes in both editions, and what all bindings have in common.
fn told(name: &str, of: impl Fn(StatusTable) -> Failure) -> String {
    let mut text = format!("{name}\n");
    let mut lines = Vec::new();
    for (edition, table) in [("1.0.1", StatusTable::V1_0_1), ("1.0.0", StatusTable::V1_0_0)] {
        let failure = of(table);
        let status = grpc::status_of_failure(failure.clone());
        let rest = rest_error(&failure)["error"].clone();
        let jsonrpc = jsonrpc_error(&failure);
        let all = [Told::of_status(&status), Told::of_jsonrpc(&jsonrpc), Told::of_rest(&rest)];
        assert!(all.iter().all(|told| told == &all[0]), "{all:?}");
        let fault = failure.fault;
        assert_eq!(rest["code"], fault.http);
        lines.push((
            format!(
                "gRPC {} {:?}, HTTP {} {}, JSON-RPC {} in HTTP {}",
                fault.grpc,
                Code::from_i32(fault.grpc),
                fault.http,
                rest["status"].as_str().unwrap(),
                fault.jsonrpc,
                fault.jsonrpc_http(),
            ),
            edition,
        ));
        if table == StatusTable::V1_0_1 {
            writeln!(text, "  {:?}", all[0].common.0).unwrap();
            for detail in all[0].common.1.as_array().unwrap() {
                writeln!(text, "  {}", line(detail)).unwrap();
            }
        }
    }
    if lines[0].0 == lines[1].0 {
        lines.truncate(1);
    }
    for (codes, edition) in lines {
        writeln!(text, "  {edition}: {codes}").unwrap();
    }
    text
}

/// A detail, without what all of them have in common.
fn line(detail: &Value) -> String {
    let mut detail = detail.clone();
    let members = detail.as_object_mut().unwrap();
    let kind = members.remove("@type").unwrap();
    let kind = kind.as_str().unwrap().strip_prefix("type.googleapis.com/google.rpc.").unwrap();
    format!("{kind} {}", Value::Object(members.clone()))
}

fn all() -> String {
    let mut text = String::new();
    for error in faults::every() {
        let debug = format!("{error:?}");
        let name = debug.split([' ', '(', '{']).next().unwrap();
        text += &told(name, |table| Failure::in_table(&error, table));
    }
    text += "\nWhat never comes to be a call:\n\n";
    for row in ROWS.iter().filter(|row| !is_of_an_error(row)) {
        let of = |table| Failure::of_fault(row.in_table(table), row.text);
        text += &told(row.text, of);
    }
    text
}

fn is_of_an_error(row: &Fault) -> bool {
    faults::every().iter().any(|error| Failure::of(error).fault == *row)
}

/// Run with `UPDATE_SNAPSHOT=1` to accept a change, and read the difference before committing it.
#[test]
fn every_error_on_every_binding_is_as_it_was() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/bindings/errors.golden.txt");
    let now = all();
    if std::env::var_os("UPDATE_SNAPSHOT").is_some_and(|value| value == "1") {
        std::fs::write(&path, &now).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(stored == now, "{now}");
}

#[test]
fn an_error_in_json_is_as_bounded_as_on_grpc() {
    let long = "\u{e9}".repeat(100_000);
    let failure = Failure::of(&Error::invalid(long.clone(), long));
    assert!(rest_error(&failure).to_string().len() < 4096);
    assert!(jsonrpc_error(&failure).to_string().len() < 4096);
}
