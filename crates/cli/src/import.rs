//! What the imports of other systems' manifests share.

pub(crate) mod fields;

/// A remark on an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Remark {
    /// Whether what happens can differ from what happened there.
    pub(crate) differs: bool,
    /// What is different.
    pub(crate) text: String,
}

/// Remarks in the making.
#[derive(Debug, Default)]
pub(crate) struct Remarks(pub(crate) Vec<Remark>);

impl Remarks {
    /// Something that cannot change what happens, or is only better.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        self.add(false, text.into());
    }

    /// Something that cannot be carried over exactly.
    pub(crate) fn differs(&mut self, text: impl Into<String>) {
        self.add(true, text.into());
    }

    fn add(&mut self, differs: bool, text: String) {
        let remark = Remark { differs, text };
        if !self.0.contains(&remark) {
            self.0.push(remark);
        }
    }
}
