//! Parts of a name and their template arguments as people read them.

use crate::names::literal::{is_encoding, is_nothing, is_number, literal};
use crate::names::path::{NameNode, PathPart, split, without_qualifiers};
use crate::names::summary::{Summary, shape};
use crate::names::vocabulary as known;

/// How much of the template arguments to show.
#[derive(Clone, Copy)]
pub struct Detail {
    /// The most nested argument lists. Deeper types are summarized.
    pub depth: usize,
    /// The most arguments of one list. The most descriptive ones are shown.
    pub arguments: usize,
    /// Whether `true` and `false` are shown.
    pub flags: bool,
    /// Whether a summarized type shows its element types.
    pub elements: bool,
}

/// The detail of a summarized type.
pub const BRIEF: Detail = Detail { depth: 0, arguments: 1, flags: false, elements: true };

impl Detail {
    fn inner(self) -> Detail {
        Detail { depth: self.depth.saturating_sub(1), ..self }
    }
}

/// A part of a path with its template arguments.
pub fn part(part: &PathPart<'_>, detail: Detail) -> String {
    let name = known::element(part.name).unwrap_or(part.name);
    let kept = kept(part);
    if kept.is_empty() {
        return name.to_owned();
    }
    if let Some(work) = known::held(part) {
        if detail.depth == 0 && !detail.elements {
            return argument(work, detail);
        }
        return format!("{name}<{}>", argument(work, detail.inner()));
    }
    if detail.depth == 0 {
        let simple = !detail.elements && !known::is_element(name) && Summary::of(&kept).work.is_none();
        return if simple { name.to_owned() } else { summed_up(name, &kept) };
    }
    let mut shown: Vec<(u8, String)> = Vec::new();
    let flags = detail.flags && !known::has_constant_flags(part.name);
    for arg in kept {
        let is_flag = known::is_flag(arg);
        if is_flag && !flags {
            continue;
        }
        let text = argument(arg, detail.inner());
        // `float, float, float` is shown as `float`.
        if is_flag || is_number(arg) || shown.last().is_none_or(|(_, last)| *last != text) {
            shown.push((weight(arg), text));
        }
    }
    if shown.is_empty() {
        return name.to_owned();
    }
    format!("{name}<{}>", fewer(shown, detail.arguments).join(", "))
}

/// Summarizes a type with too many or too deep arguments: the function in it, or the tile and the element
/// types.
fn summed_up(name: &str, args: &[&NameNode<'_>]) -> String {
    if let [NameNode::Path { parts, pointer }] = args
        && let [.., only] = parts.as_slice()
        && only.args.is_empty()
        && !only.is_lambda()
    {
        return format!("{name}<{}>", path(parts, BRIEF, *pointer));
    }
    if let [NameNode::Text(text)] = args {
        return format!("{name}<{}>", literal(text));
    }
    let summary = Summary::of(args);
    let work = summary.work.map(|parts| lambda(parts, BRIEF));
    let mut words: Vec<String> = work.or(summary.tile).into_iter().collect();
    words.extend(summary.elements.into_iter().map(str::to_owned));
    if words.is_empty() {
        let first = args.iter().find_map(|arg| match arg {
            NameNode::Path { parts, .. } => {
                parts.last().map(|own| own.name).filter(|name| !known::is_carrier(name))
            }
            NameNode::Text(_) => None,
        });
        words.extend(first.map(str::to_owned));
        words.extend((args.len() > 1 || first.is_none()).then(|| "…".to_owned()));
    }
    format!("{name}<{}>", words.join(", "))
}

/// A kernel class's name with its tile and elements, if it has a tile.
pub fn tiled(part: &PathPart<'_>) -> Option<String> {
    let args: Vec<&NameNode<'_>> = part.args.iter().collect();
    Summary::of(&args).tile.is_some().then(|| summed_up(part.name, &args))
}

/// The arguments that describe the part. A bundle of settings is replaced by its arguments.
fn kept<'n, 'a>(part: &'n PathPart<'a>) -> Vec<&'n NameNode<'a>> {
    // More are never shown.
    const KEPT_MAX: usize = 64;
    let numbers = !known::has_constant_numbers(part.name);
    let says_something = |arg: &&NameNode<'_>| {
        !known::is_plumbing(arg) && !is_encoding(arg) && (numbers || !is_number(arg)) && !is_nothing(arg)
    };
    let mut kept = Vec::new();
    for arg in part.args.iter().filter(says_something).take(KEPT_MAX) {
        match bundle(arg) {
            Some(bundle) if !known::is_bundle(part.name) => {
                kept.extend(
                    bundle.args.iter().filter(|arg| says_something(arg) && self::bundle(arg).is_none()),
                );
            }
            Some(_) => {}
            None => kept.push(arg),
        }
    }
    kept
}

fn bundle<'n, 'a>(node: &'n NameNode<'a>) -> Option<&'n PathPart<'a>> {
    let NameNode::Path { parts, .. } = node else { return None };
    parts.last().filter(|own| known::is_bundle(own.name) && !own.args.is_empty())
}

/// Keeps the most descriptive arguments, in their order.
fn fewer(mut shown: Vec<(u8, String)>, most: usize) -> Vec<String> {
    let mut indexes: Vec<usize> = (0..shown.len()).collect();
    if shown.len() > most {
        indexes.sort_by_key(|index| std::cmp::Reverse(shown[*index].0));
        indexes.truncate(most);
        indexes.sort_unstable();
        shown.push((0, "…".to_owned()));
        indexes.push(shown.len() - 1);
    }
    indexes.into_iter().map(|index| std::mem::take(&mut shown[index].1)).collect()
}

/// How well an argument describes a kernel: functions and functors best, then shapes and classes, then
/// element types, then numbers and index types.
fn weight(node: &NameNode<'_>) -> u8 {
    match node {
        NameNode::Text(_) => 1,
        NameNode::Path { parts, pointer } => match parts.last() {
            Some(own) if own.params.is_some() || own.is_lambda() || own.name == "operator()" => 5,
            Some(_) if Summary::of(&[node]).work.is_some() => 5,
            Some(own) if *pointer || known::is_carrier(own.name) => 1,
            Some(own) if known::element(own.name).is_some() => 3,
            Some(own) if is_index(own.name) => 1,
            Some(_) => 4,
            None => 0,
        },
    }
}

fn is_index(name: &str) -> bool {
    matches!(
        name,
        "int" | "long" | "short" | "char" | "bool" | "true" | "false" | "size_t" | "signed" | "unsigned"
    )
}

pub fn argument(node: &NameNode<'_>, detail: Detail) -> String {
    match node {
        NameNode::Text(text) => literal(text),
        NameNode::Path { parts, pointer } => path(parts, detail, *pointer),
    }
}

/// A path of a type or function among the arguments.
pub fn path(parts: &[PathPart<'_>], detail: Detail, pointer: bool) -> String {
    let Some((own, outer)) = parts.split_last() else { return String::new() };
    if own.is_lambda() || (own.name == "operator()" && outer.iter().any(PathPart::is_lambda)) {
        return lambda(parts, detail);
    }
    if own.name == "operator()"
        && let Some(class) = outer.last()
    {
        return part(class, detail);
    }
    if let Some(work) = known::unwrapped(own) {
        return argument(work, detail);
    }
    if known::is_carrier(own.name)
        && let Some(work) = Summary::of(&own.args.iter().collect::<Vec<_>>()).work
    {
        return lambda(work, BRIEF);
    }
    if known::is_number_type(own.name)
        && let Some(value) = own.args.last()
    {
        return argument(value, detail);
    }
    if let Some(shape) = shape(own) {
        return shape;
    }
    let mut shown = String::new();
    // A type within a class template is shown with the template.
    if let Some(home) = outer.last().filter(|home| !home.args.is_empty() && !known::is_version(home.name)) {
        shown += &part(home, Detail { depth: detail.depth.min(1), ..detail });
        shown += "::";
    }
    shown += &part(own, detail);
    if pointer {
        shown.push('*');
    }
    shown
}

/// A lambda is named after the function that contains it, with its parameter types. In a launcher, which only
/// passes on its argument, it is that argument.
pub fn lambda(parts: &[PathPart<'_>], detail: Detail) -> String {
    let Some(at) = parts.iter().position(|part| part.params.is_some() || part.is_lambda()) else {
        return "lambda".to_owned();
    };
    let home = &parts[at];
    if home.name == "operator()" && at > 0 {
        return part(&parts[at - 1], detail);
    }
    if known::is_launcher(home.name)
        && let Some(work) = home.args.iter().find(|arg| matches!(arg, NameNode::Path { .. }))
    {
        return argument(work, detail);
    }
    let params = parts.iter().rev().find(|part| part.is_lambda()).map_or("", |part| lambda_params(part));
    let mut types: Vec<String> =
        split(params, ",").unwrap_or_default().into_iter().filter_map(last_name).collect();
    types.dedup();
    // If no parameter is an element type, the function around the lambda may name one.
    let mut name = if home.is_lambda() { "lambda".to_owned() } else { home.name.to_owned() };
    if !types.iter().any(|name| known::is_element(name)) {
        let elements = Summary::of(&home.args.iter().collect::<Vec<_>>()).elements;
        if !elements.is_empty() {
            name = format!("{name}<{}>", elements.join(", "));
        }
    }
    const TYPES_MAX: usize = 3;
    if types.len() > TYPES_MAX {
        types.truncate(TYPES_MAX);
        types.push("…".to_owned());
    }
    if types.is_empty() { format!("{name}::lambda") } else { format!("{name}({})", types.join(", ")) }
}

/// The parameters of `{lambda(float, int)#1}` or `'lambda'(float, int)`.
fn lambda_params<'a>(part: &PathPart<'a>) -> &'a str {
    let inside = part.name.strip_prefix("{lambda(").and_then(|rest| rest.rsplit_once(')'));
    inside.map(|(params, _)| params).or(part.params).unwrap_or("")
}

/// A type's own name without namespaces and arguments, unless it is long. Works on text, since the parameters
/// of lambdas may be nested to any depth.
fn last_name(text: &str) -> Option<String> {
    let (core, _) = without_qualifiers(text.trim());
    let core = core.trim();
    if let Some(word) = known::builtin(core) {
        return Some(word.to_owned());
    }
    let (head, rest) = core.split_at(core.find(['<', '(']).unwrap_or(core.len()));
    let name = head
        .rsplit([':', ' '])
        .next()
        .filter(|name| name.starts_with(|c: char| c.is_alphabetic() || c == '_'))?;
    const PLAIN_MAX_BYTES: usize = 12;
    let Some(element) = known::element(name) else {
        return (name.len() <= PLAIN_MAX_BYTES).then(|| name.to_owned());
    };
    let inner =
        rest.strip_prefix('<').and_then(|rest| rest.split('>').next()).filter(|_| element == "complex");
    match inner.and_then(|inner| inner.rsplit(':').next()) {
        Some(inner) => Some(format!("complex<{}>", known::element(inner.trim()).unwrap_or(inner.trim()))),
        None => Some(element.to_owned()),
    }
}
