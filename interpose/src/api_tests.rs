//! The table against the facts.

use super::*;

const FACTS: &str = include_str!("../../cupti-sys/facts/driver_abi.txt");

/// (base, symbol, since, flavour) of every fact.
fn facts() -> Vec<(&'static str, &'static str, u32, &'static str)> {
    FACTS
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let mut words = line.split(' ');
            let mut word = || words.next().unwrap();
            (word(), word(), word().parse().unwrap(), word())
        })
        .collect()
}

#[test]
fn entries_are_facts() {
    let facts = facts();
    for entry in &ENTRIES {
        let fact = facts.iter().find(|fact| fact.0 == entry.base && fact.1 == entry.name());
        let fact = fact.unwrap_or_else(|| panic!("{} of {} is no fact", entry.name(), entry.base));
        assert_eq!(u32::from(entry.since), fact.2, "{}", entry.name());
        assert_eq!(entry.per_thread, fact.3 != "legacy", "{}", entry.name());
        assert_eq!(entry.only_waits, entry.base.ends_with("Synchronize"), "{}", entry.name());
    }
}

#[test]
fn variants_of_hooked_functions_are_all_hooked() {
    // The 32-bit ABIs from before CUDA 3.2, left out on purpose (see `api`); the batch form of waits, which
    // does several things at once.
    let known =
        |base: &str, since: u32| since < 3020 && facts().iter().any(|fact| fact.0 == base && fact.2 == 3020);
    let missing: Vec<_> = facts()
        .into_iter()
        .filter(|fact| ENTRIES.iter().any(|entry| entry.base == fact.0))
        .filter(|fact| !ENTRIES.iter().any(|entry| entry.name() == fact.1))
        .filter(|fact| !known(fact.0, fact.2))
        .filter(|fact| fact.1 != "cuMemcpyDtoDAsync")
        .map(|fact| fact.1)
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn copies_fills_launches_and_nodes_are_all_hooked() {
    let missing: Vec<_> = facts()
        .into_iter()
        .map(|fact| fact.0)
        .filter(|base| {
            [
                "cuMemcpy",
                "cuMemset",
                "cuLaunch",
                "cuMemAlloc",
                "cuMemFree",
                "cuGraphInstantiate",
                "cuModuleLoad",
            ]
            .iter()
            .any(|prefix| base.starts_with(prefix))
                || base.starts_with("cuGraphAdd") && base.ends_with("Node")
        })
        .filter(|base| !ENTRIES.iter().any(|entry| entry.base == *base))
        .collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn signatures_have_the_facts_number_of_parameters() {
    // The compiler compares the types: hooks are called with what they declare. This test reads the table's
    // source for the number of parameters, by symbol.
    let source = include_str!("api.rs");
    let mut checked = 0;
    for entry in &ENTRIES {
        let needle = format!("{} {} ", entry.name(), entry.since);
        let Some(at) = source.find(&needle) else { continue };
        // The two `cuGetProcAddress` are written out before the first row.
        let Some(row) = source[..at].rfind("\n    cu").map(|start| &source[start..at]) else { continue };
        checked += 1;
        let parameters = row[row.find('(').unwrap() + 1..].split("=> (").next().unwrap();
        let ours = parameters.matches(": ").count();
        let fact = FACTS.lines().find(|line| line.split(' ').nth(1) == Some(entry.name())).unwrap();
        let list = &fact[fact.find('(').unwrap() + 1..fact.rfind(')').unwrap()];
        let theirs = if list == "void" { 0 } else { list.split(", ").count() };
        assert_eq!(ours, theirs, "{}: {row}", entry.name());
    }
    assert_eq!(checked, ENTRIES.len() - 2);
}

#[test]
fn symbols_are_found_exactly() {
    assert_eq!(by_symbol(b"cuMemcpyHtoD_v2").map(Entry::name), Some("cuMemcpyHtoD_v2"));
    assert!(by_symbol(b"cuMemcpyHtoD").is_none());
    assert!(by_symbol(b"cudnnCreate").is_none());
    assert!(by_symbol(b"").is_none());
    for entry in &ENTRIES {
        assert!(core::ptr::eq(by_symbol(entry.name().as_bytes()).unwrap(), entry));
    }
}
