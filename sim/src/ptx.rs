//! Reads what the engine needs from PTX text: entries, their parameters and resources, and module variables.
//!
//! It is a scanner for declarations, no compiler: instructions are skipped.
//! A comment inside an entry's body states what a compiler or the device would
//! decide: `// sim.duration_ns = 5000`, `// sim.registers = 40`.

use crate::error::{Code, Result};
use crate::tokens::{Token, tokens};

/// A kernel's parameters take at most this.
const PARAMETER_BYTES: usize = 32_764;
/// A variable takes at most this.
const VARIABLE_BYTES: u32 = 1 << 30;
/// A kernel runs at most this long: a day.
const LONGEST_NS: u64 = 86_400_000_000_000;

/// One kernel parameter in the parameter block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameter {
    pub offset: usize,
    pub size: usize,
}

/// One `.entry`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    pub name: String,
    pub parameters: Vec<Parameter>,
    pub registers: u32,
    pub shared_bytes: u32,
    pub local_bytes: u32,
    /// Stated by the kernel; without it the device's rule holds.
    pub duration_ns: Option<u64>,
    /// How long a launch of it takes on the host, as where the queue is full.
    pub launch_ns: u64,
    /// The code of the error that it ends in, if it states one.
    pub fault: Option<u32>,
    /// Its code is for other devices: a look-up finds the name and no binary.
    pub no_binary: bool,
    /// Most threads in a block, from `.maxntid` or `.reqntid`.
    pub max_threads: Option<u32>,
    pub required_cluster: Option<[u32; 3]>,
}

/// One variable of the module.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    pub bytes: Vec<u8>,
    pub managed: bool,
}

/// All that a module's text declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    pub entries: Vec<Entry>,
    pub variables: Vec<Variable>,
    /// Version of the PTX language times ten, as `CU_FUNC_ATTRIBUTE_PTX_VERSION` counts.
    pub version: u32,
    /// Target architecture, 90 for sm_90.
    pub target: u32,
}

fn type_bytes(word: &str) -> Option<usize> {
    let kind = word.rsplit('.').next()?;
    Some(match kind {
        "b8" | "u8" | "s8" | "pred" => 1,
        "b16" | "u16" | "s16" | "f16" | "bf16" => 2,
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => 4,
        "b64" | "u64" | "s64" | "f64" | "texref" | "samplerref" | "surfref" => 8,
        "b128" => 16,
        _ => return None,
    })
}

fn number(word: &str) -> Option<i128> {
    let (negative, digits) = match word.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, word),
    };
    let digits = digits.trim_end_matches('U');
    let value = match digits.strip_prefix("0x").or(digits.strip_prefix("0X")) {
        Some(hex) => i128::from_str_radix(hex, 16).ok()?,
        None => digits.parse().ok()?,
    };
    Some(if negative { -value } else { value })
}

/// Splits `.param.u64` style chains, which PTX allows as well as spaced ones.
fn words_of<'a>(tokens: &[Token<'a>]) -> Vec<&'a str> {
    let mut words = Vec::new();
    for token in tokens {
        if let Token::Word(word) = token {
            match word.strip_prefix('.') {
                Some(chain) => words.extend(chain.split('.').filter(|part| !part.is_empty())),
                None => words.push(word),
            }
        }
    }
    words
}

/// A declaration such as `.align 8 .b8 name[4][2]`: name, element size, number of elements, alignment.
struct Declaration<'a> {
    name: &'a str,
    element: usize,
    count: usize,
    align: usize,
}

fn declaration<'a>(tokens: &[Token<'a>]) -> Option<Declaration<'a>> {
    let (mut element, mut align, mut name, mut count) = (None, None, None, 1usize);
    let (mut at, mut words) = (0, Vec::new());
    while at < tokens.len() {
        match &tokens[at] {
            Token::Word(word) if word.starts_with('.') => {
                for part in word[1..].split('.') {
                    match type_bytes(part) {
                        Some(bytes) => element = Some(bytes),
                        None if part == "align" => {
                            if let Some(Token::Word(value)) = tokens.get(at + 1) {
                                align = number(value).map(|v| v as usize);
                                at += 1;
                            }
                        }
                        None if part == "v2" => count *= 2,
                        None if part == "v4" => count *= 4,
                        None => {}
                    }
                }
            }
            Token::Word(word) => {
                words.push(*word);
                name = Some(*word);
            }
            Token::Mark(b'[') => {
                let size = match tokens.get(at + 1) {
                    Some(Token::Word(word)) => number(word).unwrap_or(0),
                    _ => 0,
                };
                count = count.saturating_mul(usize::try_from(size).ok()?);
                at += 1;
            }
            _ => {}
        }
        at += 1;
    }
    let element = element?;
    Some(Declaration { name: name?, element, count, align: align.unwrap_or(element).max(1) })
}

impl Declaration<'_> {
    fn bytes(&self) -> u32 {
        u32::try_from(self.element.saturating_mul(self.count)).unwrap_or(u32::MAX)
    }
}

fn registers_declared(tokens: &[Token]) -> u32 {
    let words = words_of(tokens);
    let weight = match words.iter().find_map(|word| type_bytes(word)) {
        Some(8) => 2,
        Some(16) => 4,
        Some(4 | 2) => 1,
        _ => 0,
    };
    let range = tokens.iter().position(|token| *token == Token::Mark(b'<'));
    let count = match range.and_then(|at| tokens.get(at + 1)) {
        Some(Token::Word(word)) => number(word).unwrap_or(0).clamp(0, 100_000) as u32,
        _ => 1 + tokens.iter().filter(|token| **token == Token::Mark(b',')).count() as u32,
    };
    count.saturating_mul(weight)
}

fn three(tokens: &[Token]) -> [u32; 3] {
    let mut dims = [1; 3];
    let values = tokens.iter().filter_map(|token| match token {
        Token::Word(word) => number(word),
        _ => None,
    });
    for (dim, value) in dims.iter_mut().zip(values) {
        *dim = value.clamp(1, i128::from(u32::MAX)) as u32;
    }
    dims
}

/// Index just past the mark that closes the one at `open`.
fn past_closing(tokens: &[Token], open: usize, left: u8, right: u8) -> Result<usize> {
    let mut depth = 0usize;
    for (at, token) in tokens.iter().enumerate().skip(open) {
        if *token == Token::Mark(left) {
            depth += 1;
        } else if *token == Token::Mark(right) {
            depth -= 1;
            if depth == 0 {
                return Ok(at + 1);
            }
        }
    }
    Err(Code::INVALID_PTX)
}

fn parameters(tokens: &[Token]) -> Result<Vec<Parameter>> {
    let mut offset = 0usize;
    let mut found = Vec::new();
    for part in tokens.split(|token| *token == Token::Mark(b',')) {
        if let Some(declared) = declaration(part) {
            let size = declared.bytes() as usize;
            offset = offset.checked_next_multiple_of(declared.align).ok_or(Code::INVALID_PTX)?;
            found.push(Parameter { offset, size });
            offset =
                offset.checked_add(size).filter(|&end| end <= PARAMETER_BYTES).ok_or(Code::INVALID_PTX)?;
        }
    }
    Ok(found)
}

fn body(tokens: &[Token], entry: &mut Entry) {
    let mut stated_registers = None;
    for statement in tokens.split(|token| matches!(token, Token::Mark(b';' | b'{' | b'}'))) {
        for token in statement {
            if let Token::Statement(key, value) = token {
                match *key {
                    "duration_ns" => entry.duration_ns = value.parse().ok().map(|ns: u64| ns.min(LONGEST_NS)),
                    "launch_ns" => entry.launch_ns = value.parse().map_or(0, |ns: u64| ns.min(LONGEST_NS)),
                    "fault" => entry.fault = value.parse().ok(),
                    "no_binary" => entry.no_binary = *value == "1",
                    "registers" => stated_registers = value.parse::<u32>().ok(),
                    _ => {}
                }
            }
        }
        let start = statement.iter().position(|token| matches!(token, Token::Word(_))).unwrap_or(0);
        let words = words_of(statement.get(start..start + 1).unwrap_or(&[]));
        match words.first() {
            Some(&"reg") => entry.registers = entry.registers.saturating_add(registers_declared(statement)),
            Some(&"shared") => {
                if let Some(declared) = declaration(statement) {
                    entry.shared_bytes = entry.shared_bytes.saturating_add(declared.bytes());
                }
            }
            Some(&"local") => {
                if let Some(declared) = declaration(statement) {
                    entry.local_bytes = entry.local_bytes.saturating_add(declared.bytes());
                }
            }
            _ => {}
        }
    }
    // PTX registers are in single assignment form, far more than a compiler would allot: keep the figure
    // launchable at every block size unless it was stated.
    entry.registers = stated_registers.unwrap_or(entry.registers.clamp(16, 64)).min(255);
}

fn initial_bytes(declared: &Declaration, tokens: &[Token]) -> Vec<u8> {
    let mut bytes = vec![0; declared.bytes() as usize];
    let values = tokens.iter().filter_map(|token| match token {
        Token::Word(word) => Some(float_bits(word).or_else(|| number(word)).unwrap_or(0)),
        _ => None,
    });
    for (slot, value) in bytes.chunks_mut(declared.element).zip(values) {
        let little = value.to_le_bytes();
        slot.copy_from_slice(&little[..slot.len()]);
    }
    bytes
}

fn float_bits(word: &str) -> Option<i128> {
    let hex = word
        .strip_prefix("0f")
        .or(word.strip_prefix("0F"))
        .or(word.strip_prefix("0d"))
        .or(word.strip_prefix("0D"))?;
    matches!(hex.len(), 8 | 16).then(|| i128::from_str_radix(hex, 16).ok())?
}

/// Reads a module's text.
pub fn read(text: &str) -> Result<Image> {
    let tokens = tokens(text);
    let mut image = Image::default();
    let (mut module_shared, mut at) = (0u32, 0);
    while at < tokens.len() {
        let end = tokens[at..]
            .iter()
            .position(|token| matches!(token, Token::Mark(b';' | b'{')) || is_header(token))
            .map_or(tokens.len(), |p| at + p);
        if end < tokens.len() && is_header(&tokens[end]) {
            at = header(&tokens, end, &mut image)?;
            continue;
        }
        let statement = &tokens[at..end];
        let words = words_of(statement);
        if let Some(index) = words.iter().position(|word| *word == "entry") {
            let mut entry = Entry {
                name: words.get(index + 1).ok_or(Code::INVALID_PTX)?.to_string(),
                ..Entry::default()
            };
            entry_header(statement, &mut entry)?;
            if tokens.get(end) == Some(&Token::Mark(b'{')) {
                let close = past_closing(&tokens, end, b'{', b'}')?;
                body(&tokens[end..close], &mut entry);
                at = close;
                image.entries.push(entry);
            } else {
                at = end + 1;
            }
            continue;
        }
        if words.contains(&"func") || words.first() == Some(&"section") {
            at = if tokens.get(end) == Some(&Token::Mark(b'{')) {
                past_closing(&tokens, end, b'{', b'}')?
            } else {
                end + 1
            };
            continue;
        }
        let is_variable = words.iter().any(|word| matches!(*word, "global" | "const"));
        let is_extern = words.contains(&"extern");
        let equals = statement.iter().position(|token| *token == Token::Mark(b'='));
        let declared = declaration(&statement[..equals.unwrap_or(statement.len())]);
        let mut values: &[Token] = equals.map_or(&[], |p| &statement[p + 1..]);
        let mut next = end + 1;
        if tokens.get(end) == Some(&Token::Mark(b'{')) {
            next = past_closing(&tokens, end, b'{', b'}')?;
            values = &tokens[end + 1..next - 1];
            if tokens.get(next) == Some(&Token::Mark(b';')) {
                next += 1;
            }
        }
        if let Some(declared) = declared {
            if is_variable && !is_extern {
                if declared.bytes() > VARIABLE_BYTES {
                    return Err(Code::OUT_OF_MEMORY);
                }
                let managed = words.contains(&"managed");
                let bytes = initial_bytes(&declared, values);
                image.variables.push(Variable { name: declared.name.to_string(), bytes, managed });
            } else if words.contains(&"shared") && !is_extern {
                module_shared = module_shared.saturating_add(declared.bytes());
            }
        }
        at = next;
    }
    if image.version == 0 || image.target == 0 {
        return Err(Code::INVALID_PTX);
    }
    for entry in &mut image.entries {
        entry.shared_bytes = entry.shared_bytes.saturating_add(module_shared);
    }
    Ok(image)
}

/// `.version`, `.target` and `.address_size` end with their line, not with a mark.
fn is_header(token: &Token) -> bool {
    matches!(token, Token::Word(".version" | ".target" | ".address_size" | ".file" | ".loc"))
}

fn header(tokens: &[Token], at: usize, image: &mut Image) -> Result<usize> {
    let Some(Token::Word(value)) = tokens.get(at + 1) else { return Err(Code::INVALID_PTX) };
    match tokens[at] {
        Token::Word(".version") => {
            let (major, minor) = value.split_once('.').ok_or(Code::INVALID_PTX)?;
            let parse = |word: &str| word.parse::<u32>().map_err(|_| Code::INVALID_PTX);
            image.version = parse(major)?.saturating_mul(10).saturating_add(parse(minor)?);
        }
        Token::Word(".target") => {
            let digits = value.trim_start_matches("sm_").trim_end_matches(char::is_alphabetic);
            image.target = digits.parse().map_err(|_| Code::INVALID_PTX)?;
            if image.target > 90 {
                return Err(Code::NO_BINARY_FOR_GPU);
            }
            let mut end = at + 2;
            while tokens.get(end) == Some(&Token::Mark(b',')) {
                end += 2;
            }
            return Ok(end);
        }
        _ => {}
    }
    Ok(at + 2)
}

fn entry_header(tokens: &[Token], entry: &mut Entry) -> Result {
    let open = tokens.iter().position(|token| *token == Token::Mark(b'('));
    let after = match open {
        Some(open) => {
            let close = past_closing(tokens, open, b'(', b')')?;
            entry.parameters = parameters(&tokens[open + 1..close - 1])?;
            close
        }
        None => 0,
    };
    for (at, token) in tokens.iter().enumerate().skip(after) {
        let Token::Word(word) = token else { continue };
        let values: Vec<_> = tokens[at + 1..]
            .iter()
            .take_while(|token| !matches!(token, Token::Word(word) if word.starts_with('.')))
            .cloned()
            .collect();
        match *word {
            ".maxntid" | ".reqntid" => {
                entry.max_threads =
                    Some(three(&values).iter().fold(1u32, |all, &dim| all.saturating_mul(dim)))
            }
            ".reqnctapercluster" => entry.required_cluster = Some(three(&values)),
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
// made for this test
.version 8.3
.target sm_90, debug
.address_size 64
.visible .global .align 4 .u32 table[3] = {1, 0x10, -1};
.const .f32 one = 0f3F800000;
.extern .shared .align 16 .b8 dynamic[];
.func (.param .b32 r) helper(.param .b32 a) { .reg .b32 %x<99>; ret; }
.visible .entry _Z3addPfS_i(
    .param .u64 .ptr .global .align 4 a,
    .param .u8 flag,
    .param .align 8 .b8 big[24]
)
.maxntid 256, 2, 1
.reqnctapercluster 2, 1, 1
{
    // sim.duration_ns = 5000
    .reg .pred %p<3>;
    .reg .b32 %r<12>;
    .reg .b64 %rd<5>;
    .shared .align 4 .f32 tile[16][17];
    { .reg .b32 inner, other; }
$L__BB0_1:
    ret;
}
.entry plain() { // sim.registers = 40
  ret; }
";

    #[test]
    fn entries_and_resources_are_read() {
        let image = read(TEXT).unwrap();
        assert_eq!((image.version, image.target), (83, 90));
        let add = &image.entries[0];
        assert_eq!(add.name, "_Z3addPfS_i");
        let at = |offset, size| Parameter { offset, size };
        assert_eq!(add.parameters, [at(0, 8), at(8, 1), at(16, 24)]);
        assert_eq!(add.registers, 12 + 10 + 2);
        assert_eq!(add.shared_bytes, 16 * 17 * 4);
        assert_eq!((add.duration_ns, add.max_threads), (Some(5000), Some(512)));
        assert_eq!(add.required_cluster, Some([2, 1, 1]));
        let plain = &image.entries[1];
        assert_eq!((plain.name.as_str(), plain.registers, plain.parameters.len()), ("plain", 40, 0));
        assert_eq!(image.entries.len(), 2);
    }

    #[test]
    fn variables_and_their_first_values_are_read() {
        let image = read(TEXT).unwrap();
        assert_eq!(image.variables[0].name, "table");
        assert_eq!(image.variables[0].bytes, [1, 0, 0, 0, 16, 0, 0, 0, 255, 255, 255, 255]);
        assert_eq!(image.variables[1].bytes, 1f32.to_le_bytes());
        assert_eq!(image.variables.len(), 2);
    }

    #[test]
    fn text_that_is_no_ptx_is_refused() {
        assert_eq!(read("hello"), Err(Code::INVALID_PTX));
        assert_eq!(read(".version 8.0\n.target sm_90\n.visible .entry k( {"), Err(Code::INVALID_PTX));
        assert_eq!(read(".version 8.0\n.target sm_120\n"), Err(Code::NO_BINARY_FOR_GPU));
    }

    #[test]
    fn damaged_text_is_refused_or_read_but_never_more() {
        let mut state = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = |below: usize| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state % below as u64) as usize
        };
        let pieces = [
            "{",
            "}",
            "(",
            ")",
            "[",
            "]",
            ";",
            "99999999999999999999",
            ".align",
            "0",
            "//",
            "/*",
            "\"",
            "é",
            "<",
        ];
        let (mut read_well, mut refused) = (0, 0);
        for _ in 0..20_000 {
            let mut text = TEXT.as_bytes().to_vec();
            for _ in 0..1 + random(3) {
                let at = random(text.len());
                let piece = pieces[random(pieces.len())].bytes();
                let until = (at + random(12)).min(text.len());
                text.splice(at..until, piece);
            }
            match read(&String::from_utf8_lossy(&text)) {
                Ok(_) => read_well += 1,
                Err(_) => refused += 1,
            }
        }
        assert!(read_well > 100 && refused > 100, "{read_well} {refused}");
    }

    #[test]
    fn ptx_on_one_line_is_read() {
        let image =
            read(".version 7.0 .target sm_80 .address_size 64 .visible .entry k(.param .u64 p) { ret; }")
                .unwrap();
        assert_eq!(image.entries[0].parameters.len(), 1);
    }
}
