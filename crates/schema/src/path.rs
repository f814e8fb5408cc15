//! Where in an object something is, kept on the stack and written out only when there is something to say.

/// The place of a value, from its parents' stack frames.
#[derive(Clone, Copy)]
pub(crate) enum Path<'p> {
    /// The object itself.
    Root,
    /// A property.
    Field(&'p Path<'p>, &'p str),
    /// An entry of a map, whose keys are the user's.
    Entry(&'p Path<'p>, &'p str),
    /// An item of a list.
    Index(&'p Path<'p>, usize),
}

impl Path<'_> {
    /// As the checks of values write it: entries as fields, nothing for the root.
    pub(crate) fn dotted(&self) -> String {
        match self {
            Path::Root => String::new(),
            Path::Field(Path::Root, name) => (*name).to_owned(),
            Path::Field(parent, name) | Path::Entry(parent, name) => format!("{}.{name}", parent.dotted()),
            Path::Index(parent, index) => format!("{}[{index}]", parent.dotted()),
        }
    }

    /// As rules and list types write it: entries in brackets, `<nil>` for the root.
    pub(crate) fn bracketed(&self) -> String {
        match self {
            Path::Root => "<nil>".to_owned(),
            Path::Field(Path::Root, name) => (*name).to_owned(),
            Path::Field(parent, name) => format!("{}.{name}", parent.bracketed()),
            Path::Entry(Path::Root, name) => format!("[{name}]"),
            Path::Entry(parent, name) => format!("{}[{name}]", parent.bracketed()),
            Path::Index(Path::Root, index) => format!("[{index}]"),
            Path::Index(parent, index) => format!("{}[{index}]", parent.bracketed()),
        }
    }
}
