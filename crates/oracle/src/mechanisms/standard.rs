use zoo_spec::Standard;

use super::Definition;

impl Definition for Standard {}
