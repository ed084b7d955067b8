//! The architecture as a test: who may use whom, how large a file may be, where SQL may stand.
//!
//! Every rule is a function from the files to the faults it found, so the last test can plant a
//! fault for each and see it caught.

use std::fs;
use std::path::Path;

/// Which parts a part may use beside itself. The order is that of `docs/architecture.md`.
const MAY_USE: &[(&str, &[&str])] = &[
    ("contract", &[]),
    ("metrics", &[]),
    ("domain", &["contract"]),
    ("store", &["metrics", "domain", "contract"]),
    ("agent", &["domain", "contract"]),
    ("card", &["domain", "contract"]),
    ("service", &["agent", "store", "metrics", "domain", "contract"]),
    ("auth", &["card", "domain", "contract"]),
    ("bindings", &["service", "auth", "agent", "store", "metrics", "domain", "contract"]),
    ("config", &["bindings", "service", "auth", "card", "agent", "store", "domain", "contract"]),
    (
        "server",
        &[
            "config", "bindings", "service", "auth", "card", "agent", "store", "metrics", "domain",
            "contract",
        ],
    ),
    ("telemetry", &[]),
    ("client", &["contract"]),
    ("main", &["server", "client", "config", "telemetry", "card", "store", "domain", "contract"]),
];

/// Words that may stand in the code of some parts alone: the words, the parts, and why.
const WORDS: &[(&[&str], Where, &str)] = &[
    (
        &["rusqlite::", "tokio_postgres::", "deadpool_postgres::"],
        Where::OnlyIn(&["store"]),
        "databases are known in src/store alone",
    ),
    (
        &["tonic::", "axum::", "hyper::"],
        Where::NotIn(&["service", "store", "domain", "agent"]),
        "the wire's types end at the bindings",
    ),
    (&["use crate::{"], Where::NotIn(&[]), "paths are written out, so that they can be searched"),
    (&["super::super::"], Where::NotIn(&[]), "paths from the root are clearer"),
];

#[derive(Clone, Copy)]
enum Where {
    OnlyIn(&'static [&'static str]),
    /// An empty list means: nowhere.
    NotIn(&'static [&'static str]),
}

/// How a statement begins, on a line of its own or in a literal.
const SQL: &[&str] = &["select ", "insert into ", "delete from ", "create table "];

const LINES_MAX: usize = 600;
const MEDIAN_MAX: usize = 200;

/// Put together here, so that this file passes its own test.
const LEFT_OPEN: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

struct File {
    /// From the package's root, with `/`.
    path: String,
    text: String,
}

impl File {
    /// The part of `src` that this file belongs to; `None` outside of `src` and for `lib.rs`.
    fn part(&self) -> Option<&str> {
        let inside = self.path.strip_prefix("src/")?;
        let part = inside.split('/').next()?.trim_end_matches(".rs");
        (part != "lib").then_some(part)
    }

    /// The lines with their numbers, without comments.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text
            .lines()
            .enumerate()
            .map(|(i, line)| (i + 1, line))
            .filter(|(_, line)| !line.trim_start().starts_with("//"))
    }

    fn in_src(&self) -> bool {
        self.path.starts_with("src/")
    }
}

/// What `line` names after each `prefix`: `crate::store::Store` gives `store` for `crate::`.
fn named_after<'a>(line: &'a str, prefix: &str) -> Vec<&'a str> {
    let mut names = Vec::new();
    let mut rest = line;
    let mut before = None;
    while let Some(at) = rest.find(prefix) {
        let (head, tail) = rest.split_at(at);
        let last = head.chars().next_back().or(before);
        let tail = tail.strip_prefix(prefix).expect("it was found here");
        let end = tail.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(tail.len());
        let (name, after) = tail.split_at(end);
        if !name.is_empty() && !last.is_some_and(|c| c.is_alphanumeric() || c == '_') {
            names.push(name);
        }
        before = name.chars().next_back();
        rest = after;
    }
    names
}

fn uses_out_of_order(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files {
        let Some(part) = file.part() else { continue };
        let path = file.path.trim_start_matches("src/");
        let Some((_, allowed)) = MAY_USE.iter().find(|(name, _)| *name == part) else {
            faults.push(format!("{path}: {part} is a part that the table in layers.rs lacks"));
            continue;
        };
        let prefix = if part == "main" { "a2ad::" } else { "crate::" };
        for (number, line) in file.code() {
            for used in named_after(line, prefix) {
                if used != part && !allowed.contains(&used) {
                    faults.push(format!("{path}:{number}: {part} uses {used}"));
                }
            }
        }
    }
    faults
}

fn is_sql(line: &str) -> bool {
    let line = line.trim_start().to_lowercase();
    SQL.iter().any(|word| line.starts_with(word) || line.contains(&format!("\"{word}")))
}

fn words_out_of_place(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files {
        let Some(part) = file.part() else { continue };
        for (number, line) in file.code().filter(|(_, line)| part != "store" && is_sql(line)) {
            faults.push(format!("{}:{number}: {line}: SQL stands in src/store alone", file.path));
        }
        for (words, place, why) in WORDS {
            let allowed = match place {
                Where::OnlyIn(parts) => parts.contains(&part),
                Where::NotIn(parts) => !parts.is_empty() && !parts.contains(&part),
            };
            if allowed {
                continue;
            }
            for (number, line) in file.code() {
                if let Some(word) = words.iter().find(|word| line.contains(**word)) {
                    let path = &file.path;
                    faults.push(format!("{path}:{number}: {:?}: {why}", word.trim_end()));
                }
            }
        }
    }
    faults
}

fn files_too_large(files: &[File]) -> Vec<String> {
    let mut faults: Vec<_> = files
        .iter()
        .map(|file| (&file.path, file.text.lines().count()))
        // The protocol fixes what stands together in its proto file.
        .filter(|(path, lines)| *lines > LINES_MAX && !path.ends_with(".proto"))
        .map(|(path, lines)| format!("{path}: {lines} lines, at most {LINES_MAX}"))
        .collect();
    let mut sizes: Vec<_> =
        files.iter().filter(|f| f.in_src()).map(|f| f.text.lines().count()).collect();
    sizes.sort_unstable();
    if let Some(median) = sizes.get(sizes.len() / 2).filter(|median| **median > MEDIAN_MAX) {
        faults.push(format!("src: the median file has {median} lines, at most {MEDIAN_MAX}"));
    }
    faults
}

fn work_left_open(files: &[File]) -> Vec<String> {
    let mut faults = Vec::new();
    for file in files {
        for (number, line) in file.text.lines().enumerate() {
            if let Some(word) = LEFT_OPEN.iter().find(|word| line.contains(**word)) {
                faults.push(format!("{}:{}: {word}", file.path, number + 1));
            }
        }
    }
    faults
}

/// Every folder of `src`, and every file directly in it, has its line in the code map.
fn missing_in_the_map(files: &[File], map: &str) -> Vec<String> {
    let mut places: Vec<&str> = Vec::new();
    for file in files.iter().filter(|file| file.in_src()) {
        let inside = file.path.trim_start_matches("src/");
        match inside.rsplit_once('/') {
            Some((folder, _)) => places.push(folder),
            None => places.push(inside),
        }
    }
    places.sort_unstable();
    places.dedup();
    places
        .into_iter()
        .map(|place| format!("src/{place}"))
        .filter(|place| {
            !map.contains(&format!("`{place}`")) && !map.contains(&format!("`{place}/`"))
        })
        .map(|place| format!("docs/architecture.md does not name `{place}`"))
        .collect()
}

fn read(root: &Path, folder: &str, files: &mut Vec<File>) {
    let mut entries: Vec<_> = fs::read_dir(root.join(folder))
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path())
        .collect();
    entries.sort();
    for entry in entries {
        let name = entry.file_name().unwrap().to_str().unwrap();
        let path = format!("{folder}/{name}");
        if entry.is_dir() {
            read(root, &path, files);
        } else if let Ok(text) = fs::read_to_string(&entry) {
            files.push(File { path, text });
        }
    }
}

fn tree() -> Vec<File> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for folder in ["src", "tests", "examples", "proto", "migrations"] {
        read(root, folder, &mut files);
    }
    let text = fs::read_to_string(root.join("build.rs")).unwrap();
    files.push(File { path: "build.rs".to_owned(), text });
    assert!(files.iter().any(File::in_src), "no file of src was read");
    files.retain(|file| {
        let ext = Path::new(&file.path).extension().and_then(|ext| ext.to_str());
        matches!(ext, Some("rs" | "proto" | "sql" | "py"))
    });
    files
}

#[track_caller]
fn assert_none(faults: &[String]) {
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn each_part_uses_only_the_parts_below_it() {
    assert_none(&uses_out_of_order(&tree()));
}

#[test]
fn sql_and_wire_types_stay_in_their_parts() {
    assert_none(&words_out_of_place(&tree()));
}

#[test]
fn files_are_small() {
    assert_none(&files_too_large(&tree()));
}

#[test]
fn nothing_is_left_open() {
    assert_none(&work_left_open(&tree()));
}

#[test]
fn the_code_map_names_every_part() {
    let map = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/architecture.md");
    assert_none(&missing_in_the_map(&tree(), &fs::read_to_string(map).unwrap()));
}

#[test]
fn planted_faults_are_caught() {
    let file = |path: &str, text: &str| vec![File { path: path.to_owned(), text: text.to_owned() }];

    let planted = [
        (
            "src/store/mod.rs",
            "\n\n\n\nuse crate::client::Client;",
            "store/mod.rs:5: store uses client",
        ),
        (
            "src/domain/page.rs",
            "let x = (crate::store::Page::new)();",
            "domain/page.rs:1: domain uses store",
        ),
        ("src/main.rs", "use a2ad::service::Service;", "main.rs:1: main uses service"),
        ("src/utils.rs", "", "utils.rs: utils is a part that the table in layers.rs lacks"),
    ];
    for (path, text, fault) in planted {
        assert_eq!(uses_out_of_order(&file(path, text)), [fault]);
    }
    let harmless = "//! [`crate::client`]\nuse crate::store::Store;\nuse crate::domain::Scope;\nother_crate::x();";
    assert_none(&uses_out_of_order(&file("src/store/mod.rs", harmless)));

    for (path, text) in [
        ("src/service/mod.rs", "let sql = \"SELECT 1\";"),
        ("src/main.rs", "    delete from tasks"),
        ("src/server.rs", "use rusqlite::Connection;"),
        ("src/service/mod.rs", "fn f() -> tonic::Status {}"),
        ("src/server.rs", "use crate::{domain::Scope, store::Store};"),
        ("src/store/sqlite/rows.rs", "use super::super::Store;"),
    ] {
        assert_eq!(words_out_of_place(&file(path, text)).len(), 1, "{path}: {text}");
    }
    assert_none(&words_out_of_place(&file("src/store/a.rs", "\"SELECT 1\"")));
    assert_none(&words_out_of_place(&file("src/bindings/a.rs", "tonic::Status")));

    assert_eq!(files_too_large(&file("tests/it/a.rs", &"\n".repeat(601))).len(), 1);
    assert_eq!(files_too_large(&file("src/a.rs", &"\n".repeat(201))).len(), 1);
    assert_none(&files_too_large(&file("src/a.rs", &"\n".repeat(200))));

    for word in LEFT_OPEN {
        assert_eq!(work_left_open(&file("proto/a.proto", &format!("// {word}"))).len(), 1);
    }

    let map = "`src/store/` and `src/lib.rs`";
    assert_none(&missing_in_the_map(&file("src/store/mod.rs", ""), map));
    assert_none(&missing_in_the_map(&file("src/lib.rs", ""), map));
    assert_eq!(missing_in_the_map(&file("src/store/sqlite/mod.rs", ""), map).len(), 1);
    assert_eq!(missing_in_the_map(&file("src/auth.rs", ""), map).len(), 1);
}
