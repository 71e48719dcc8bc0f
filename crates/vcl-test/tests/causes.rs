//! Simulated worlds in which the cause of each outcome is known: a model predicts it from the requests, purges, bans and
//! times, and the explanation of `lacquer why` must be the same.

mod causes_model;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use causes_model::{ALL, Course, VCL};
use lacquer_vcl_test::{Settings, check};

/// The number of worlds, of steps in each, and of outcomes to compare at least.
const WORLDS: u64 = 40;
const STEPS: usize = 40;
const LEAST: usize = 200;

#[test]
fn random_outcomes_have_their_cause() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("causes");
    std::fs::create_dir_all(&folder).expect("a folder can be created");
    let vcl = folder.join("world.vcl");
    std::fs::write(&vcl, VCL).expect("the VCL can be written");
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let (first, worlds) = (number("SEED").unwrap_or(1), number("WORLDS").unwrap_or(WORLDS));
    let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut text = causes_model::setup();
    for seed in first..first + worlds {
        let mut course = Course::new(seed);
        (0..STEPS).for_each(|_| course.step());
        text += course.text();
        for outcome in course.outcomes() {
            *outcomes.entry(outcome).or_default() += 1;
        }
    }
    let settings = Settings { filter: None, params: Vec::new(), limit: Duration::from_mins(5) };
    let files = [("world.test".to_owned(), text.clone().into_bytes())];
    let results = check(vcl.to_str().expect("text"), &files, &settings).expect("the worlds can be run");
    let lines: Vec<&str> = text.lines().collect();
    let mut wrong = Vec::new();
    for test in results.files.iter().flat_map(|file| &file.tests) {
        for failure in &test.failures {
            let line = lines.get((failure.line as usize).saturating_sub(1)).copied().unwrap_or_default();
            wrong.push(format!("world {}, line {}: {line}: {failure:#?}", test.name, failure.line));
        }
    }
    std::fs::write(folder.join("world.test"), &text).expect("the tests can be written");
    let missing: Vec<&&str> = ALL.iter().filter(|name| !outcomes.contains_key(**name)).collect();
    let count: usize = outcomes.values().sum();
    if !wrong.is_empty() || !missing.is_empty() || count < LEAST {
        // The engine collects the texts of panics.
        println!("{outcomes:?}, missing {missing:?}\n{}", wrong.join("\n"));
    }
    assert!(wrong.is_empty() && missing.is_empty() && count >= LEAST);
}
