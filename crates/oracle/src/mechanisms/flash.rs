use zoo_spec::Flash;

use super::Definition;

impl Definition for Flash {}
