//! What stands in `deploy/` for operators: it says what it says in the language of its readers, and
//! names nothing that is not there.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use promql_parser::parser::{self, Expr};
use serde_json::Value;

use crate::metrics::documented;
use crate::support::program::command;

fn package(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}

fn text(path: &str) -> String {
    fs::read_to_string(package(path)).unwrap()
}

/// The names of the numbers in an expression.
fn names(expression: &Expr, into: &mut BTreeSet<String>) {
    match expression {
        Expr::VectorSelector(selector) => into.extend(selector.name.clone()),
        Expr::MatrixSelector(selector) => into.extend(selector.vs.name.clone()),
        Expr::Aggregate(of) => names(&of.expr, into),
        Expr::Binary(of) => {
            names(&of.lhs, into);
            names(&of.rhs, into);
        }
        Expr::Unary(of) => names(&of.expr, into),
        Expr::Paren(of) => names(&of.expr, into),
        Expr::Subquery(of) => names(&of.expr, into),
        Expr::Call(of) => of.args.args.iter().for_each(|argument| names(argument, into)),
        Expr::NumberLiteral(_) | Expr::StringLiteral(_) | Expr::Extension(_) => {}
    }
}

/// Each expression can be read, and each number that it names is one that a server has.
fn are_sound(expressions: &[String]) {
    let known = documented();
    for expression in expressions {
        let parsed = parser::parse(expression).unwrap_or_else(|e| panic!("{e}: {expression}"));
        let mut found = BTreeSet::new();
        names(&parsed, &mut found);
        assert!(!found.is_empty(), "{expression} names nothing");
        for name in found.iter().filter(|name| *name != "up") {
            let bare =
                ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
            let there = known.contains(name.as_str()) || bare.is_some_and(|b| known.contains(b));
            assert!(there, "{name} is no number of a2ad: {expression}");
        }
    }
}

#[test]
fn every_alert_can_be_read_and_says_when_and_why() {
    let file: Value = serde_yaml_ng::from_str(&text("deploy/prometheus/alerts.yaml")).unwrap();
    let rules = file["groups"][0]["rules"].as_array().unwrap();
    let mut alerts = BTreeSet::new();
    let mut expressions = Vec::new();
    for rule in rules {
        let name = rule["alert"].as_str().unwrap();
        assert!(alerts.insert(name), "{name} stands twice");
        assert!(rule["for"].is_string() && rule["labels"]["severity"].is_string(), "{name}");
        assert!(rule["annotations"]["summary"].as_str().unwrap().len() > 10, "{name}");
        expressions.push(rule["expr"].as_str().unwrap().to_owned());
    }
    assert!(alerts.len() > 9);
    are_sound(&expressions);
}

#[test]
fn every_panel_of_the_dashboard_can_be_read_and_none_is_forgotten() {
    let dashboard: Value = serde_json::from_str(&text("deploy/grafana/a2ad.json")).unwrap();
    let mut ids = BTreeSet::new();
    let mut expressions = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_i64().unwrap()), "{panel}");
        for target in panel["targets"].as_array().unwrap() {
            let expression = target["expr"].as_str().unwrap();
            expressions.push(expression.replace("$__rate_interval", "5m").replace("$job", "a2ad"));
        }
    }
    are_sound(&expressions);
    let all = expressions.join("\n");
    let unseen = ["a2ad_build_info", "a2ad_store_connections_max"];
    for name in documented().iter().filter(|name| !unseen.contains(&name.as_str())) {
        assert!(all.contains(name.as_str()), "no panel shows {name}");
    }
}

#[test]
fn the_settings_file_is_one_that_a_server_takes() {
    let folder = tempfile::tempdir().unwrap();
    let file = package("deploy/a2ad.toml");
    let arguments = [
        "check",
        "--config",
        file.to_str().unwrap(),
        "--auth",
        "jwt",
        "--listen",
        "0.0.0.0:50051",
        "--public-url",
        "https://a2a.example",
    ];
    let output = command(folder.path(), &arguments).output().unwrap();
    let told = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{told}");
    assert!(told.contains("https://idp.example") && told.contains("limits.rates.list"), "{told}");
}

/// The commands and variables that a service or an image names are the program's own.
#[test]
fn the_service_and_the_image_name_settings_that_there_are() {
    let settings = text("docs/settings.md");
    for path in ["deploy/systemd/a2ad.service", "deploy/container/Containerfile"] {
        let text = text(path);
        let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        for name in words.filter(|word| word.starts_with("A2AD_") && word.len() > 5) {
            assert!(settings.contains(&format!("`{name}`")), "{path}: {name} is no setting");
        }
    }
    let unit = package("deploy/systemd/a2ad.service");
    // Where systemd is, it reads its own language; that the program is not installed is no fault.
    if let Ok(output) = Command::new("systemd-analyze").arg("verify").arg(&unit).output() {
        let told = String::from_utf8_lossy(&output.stderr);
        let faults: Vec<_> = told
            .lines()
            .filter(|line| line.contains("a2ad.service:") && !line.contains("is not executable"))
            .filter(|line| line.contains("Unknown") || line.contains("Failed to parse"))
            .collect();
        assert!(faults.is_empty(), "{told}");
    }
}
