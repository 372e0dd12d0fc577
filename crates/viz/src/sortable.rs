//! Tables of a page that can be sorted by a click on a column, and filtered.
//!
//! `<table class="sortable">` has a `<thead>` and a `<tbody>`. Cells are compared as numbers with
//! their units, or as text. `<th data-bar>` draws the values of its column as bars. A
//! `<select class="filter">` before the table, in the same `<div class="table">`, shows the rows
//! whose first cell is the selected value; an empty value shows all. On narrow screens, cells of
//! the class `detail` are hidden unless `<input class="all-columns">` is checked.

/// The style sheet, for a `<style>` element, with the colours of [`chart::STYLE`](crate::chart::STYLE).
pub const STYLE: &str = include_str!("sortable.css");

/// The script, for a `<script>` element after the tables.
pub const SCRIPT: &str = include_str!("sortable.js");
