//! Compares the tables of counters and log tags with the names that Varnish's users expect, and lists all names that
//! are missing or have changed their meaning.

use lacquer_params::VslMask;
use lacquer_params::bits::BitSet;
use lacquer_shm::Tag;
use lacquer_shm::vsc::SETS;

const COUNTERS: &str = include_str!("tables/counters.txt");
const TAGS: &str = include_str!("tables/tags.txt");

fn rows(table: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    table.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(' ').collect())
}

#[test]
fn every_known_counter_is_defined() {
    let ours: Vec<String> = SETS
        .iter()
        .flat_map(|set| set.counters.iter().map(move |counter| (set, counter)))
        .map(|(set, c)| format!("{} {} {} {}", set.ident(""), c.name, c.semantics.name(), c.format.name()))
        .collect();
    let missing: Vec<String> =
        rows(COUNTERS).map(|row| row.join(" ")).filter(|row| !ours.contains(row)).collect();
    assert!(missing.is_empty(), "missing or different:\n{}", missing.join("\n"));
}

#[test]
fn every_known_tag_is_defined_with_its_number() {
    let ours: Vec<String> = Tag::ALL
        .iter()
        .map(|tag| format!("{} {} {}", *tag as u8, tag.name(), format!("{:?}", tag.flags()).to_lowercase()))
        .collect();
    let missing: Vec<String> =
        rows(TAGS).map(|row| row.join(" ")).filter(|row| !ours.contains(row)).collect();
    assert!(missing.is_empty(), "missing or different:\n{}", missing.join("\n"));
}

#[test]
fn vsl_mask_names_every_tag_by_its_number() {
    let tags: Vec<&str> = Tag::ALL.iter().map(|tag| tag.name()).collect();
    assert_eq!(VslMask::default().names()[1..], tags);
}

#[test]
fn documentation_exists_and_fits_readers() {
    for set in SETS {
        for counter in set.counters {
            let name = format!("{}.{}", set.ident(""), counter.name);
            assert!(!counter.oneliner.is_empty() && !counter.docs.is_empty(), "{name} lacks documentation");
            assert!(counter.oneliner.len() <= 50, "{name}: varnishstat shows about 50 columns");
            assert!(counter.oneliner.is_ascii() && counter.docs.is_ascii(), "{name}: ASCII only");
        }
    }
    for tag in Tag::ALL {
        assert!(!tag.oneliner().is_empty(), "{} lacks documentation", tag.name());
    }
}
