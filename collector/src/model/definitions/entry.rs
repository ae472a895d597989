//! A stored definition: fields by index, and text.

#[derive(Debug)]
pub struct DefinitionEntry {
    pub kind: u16,
    pub fields: Box<[u64]>,
    pub text: Text,
}

/// Bytes for code, since line tables are binary and file names need not be UTF-8; text for all else.
#[derive(Debug)]
pub enum Text {
    Utf8(Box<str>),
    Raw(Box<[u8]>),
}

impl DefinitionEntry {
    /// The bytes on the heap.
    pub fn held_bytes(&self) -> usize {
        size_of_val(&*self.fields) + self.raw().len()
    }

    pub fn text(&self) -> &str {
        match &self.text {
            Text::Utf8(text) => text,
            Text::Raw(_) => "",
        }
    }
    pub fn raw(&self) -> &[u8] {
        match &self.text {
            Text::Utf8(text) => text.as_bytes(),
            Text::Raw(bytes) => bytes,
        }
    }
    pub fn field(&self, index: usize) -> u64 {
        self.fields.get(index).copied().unwrap_or(0)
    }
    pub fn id(&self, index: usize) -> u32 {
        u32::try_from(self.field(index)).unwrap_or(0)
    }
    pub fn small(&self, index: usize) -> u32 {
        u32::try_from(self.field(index)).unwrap_or(u32::MAX)
    }
}
