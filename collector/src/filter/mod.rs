//! `--filter KEY=GLOB[,KEY=GLOB]`: the grammar of filters, the same for every command that has them.
//!
//! This module only parses what users write. [`crate::export`] decides which values an event has for a key,
//! since it has the events.

mod glob;

pub use glob::Glob;

/// A property of an event that a filter's key names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Property {
    Process,
    Thread,
    Stream,
    Device,
    Kernel,
    Range,
}

impl Property {
    pub const ALL: [(&'static str, Property); 6] = [
        ("process", Property::Process),
        ("thread", Property::Thread),
        ("stream", Property::Stream),
        ("device", Property::Device),
        ("kernel", Property::Kernel),
        ("range", Property::Range),
    ];
}

/// One `KEY=GLOB`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Condition {
    pub property: Property,
    pub glob: Glob,
}

/// One `--filter`: it takes an event if all its conditions hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Filter(pub Vec<Condition>);

impl Filter {
    /// Reads `KEY=GLOB[,KEY=GLOB]`. A comma inside a glob must have a backslash before it.
    pub fn parse(text: &str) -> Result<Filter, String> {
        parts(text).map(condition).collect::<Result<_, _>>().map(Filter)
    }
}

fn condition(text: &str) -> Result<Condition, String> {
    let (name, glob) = text
        .split_once('=')
        .ok_or_else(|| format!("`{text}` is not KEY=GLOB; a comma that belongs to a glob is written \\,"))?;
    let found = Property::ALL.iter().find(|(known, _)| *known == name.trim());
    let (_, property) = found.ok_or_else(|| {
        let known = Property::ALL.map(|(known, _)| known).join(", ");
        format!("there is no key `{}`; the keys are {known}", name.trim())
    })?;
    if glob.is_empty() {
        return Err(format!("`{text}` has no glob; {name}=* is every event that has a {name}"));
    }
    Ok(Condition { property: *property, glob: Glob::new(glob) })
}

/// The text between commas that have no backslash before them.
fn parts(text: &str) -> impl Iterator<Item = &str> {
    let mut is_escaped = false;
    text.split(move |letter| {
        let splits = letter == ',' && !is_escaped;
        is_escaped = letter == '\\' && !is_escaped;
        splits
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filter_is_read_as_it_is_written() {
        let read = Filter::parse(r"kernel=f<int\,*>,device=0").unwrap();
        let keys: Vec<Property> = read.0.iter().map(|condition| condition.property).collect();
        assert_eq!(keys, [Property::Kernel, Property::Device]);
        assert!(read.0[0].glob.matches("f<int, 3>") && !read.0[0].glob.matches("f<int"));
        assert!(Filter::parse("range=a=b").unwrap().0[0].glob.matches("a=b"));
        assert_eq!(Filter::parse(r"range=a\\,device=1").unwrap().0.len(), 2);
    }

    #[test]
    fn filter_that_makes_no_sense_names_what_is_wrong() {
        for (text, part) in [
            ("kernl=x", "the keys are process, thread, stream, device, kernel, range"),
            ("gemm", "`gemm` is not KEY=GLOB"),
            ("kernel=f<int,float>", "`float>` is not KEY=GLOB; a comma"),
            ("kernel=", "has no glob"),
            ("", "`` is not KEY=GLOB"),
            ("device=0,", "`` is not KEY=GLOB"),
        ] {
            let why = Filter::parse(text).unwrap_err();
            assert!(why.contains(part), "{text}: {why}");
        }
    }
}
