//! The rules of trees. They are about what the API server had at each revision: native quotas, namespaces, objects.

use crate::oracle::Rule;

/// At every revision the quotas of a tree's namespaces, each the larger of what is asked for and what is in force, are together at
/// most what the tree has. So are those of each namespace below the root and all below it: at most what that one was allotted.
pub const LIMIT: Rule = Rule("LIMIT");
/// When all is done, all of what a tree has is the own quota of one of its namespaces.
pub const NOTHING_LOST: Rule = Rule("NOTHING LOST");
/// At every revision the pods of a tree's namespaces are together at most as many as the tree has, and request at most what it has.
pub const USED: Rule = Rule("USED");
/// The program of trees deletes a namespace only if it created it, or somebody had it adopted, for a `Subnamespace` that is being deleted.
pub const CREATED_HERE: Rule = Rule("CREATED HERE");
/// The program of trees deletes no namespace since one above it is being deleted: its `Subnamespace` went with that, and nobody asked for it.
pub const ASKED_FOR: Rule = Rule("ASKED FOR");
/// The admission webhook denies an amount only while the namespace above does not have as much, or while more than that is used.
pub const DENIED: Rule = Rule("DENIED");
/// No namespace is deleted that has namespaces below it.
pub const CHILDREN: Rule = Rule("CHILDREN");
/// The program of trees deletes a `Subnamespace` whose namespace is there only while one above it is being deleted that consents to that,
/// and whose consent is not over.
pub const CONSENT: Rule = Rule("CONSENT");
/// Of a tree no more namespaces are deleted one by one in a minute, or in an hour, than its own budget has.
pub const TREE_BUDGET: Rule = Rule("TREE BUDGET");
/// A role binding that is copied down a tree is one that a namespace above has, or had a moment ago.
pub const RIGHTS: Rule = Rule("RIGHTS");
/// Of transfers with one name, source, target and amount, one has moved it, as long as both namespaces are the same.
pub const MOVED_ONCE: Rule = Rule("MOVED ONCE");
/// When all is done, a namespace whose `Subnamespace` is `Ready` has what was last asked for it, transfers apart.
pub const AS_REQUESTED: Rule = Rule("AS REQUESTED");
/// When all is done, a `Subnamespace` is `Ready` or `Refused` by what was last asked for it, and its namespace is there if it is `Ready`; or it is
/// being deleted, and what it waits for is there. A transfer has ended.
pub const SETTLED: Rule = Rule("SETTLED");
/// When all is done, what is refused for its quota cannot be given: the namespace above has too little that it does not use, or the
/// namespace uses what it is to return.
pub const REFUSED: Rule = Rule("REFUSED");
