use super::*;

#[test]
fn values_by_hand() {
    for (text, value) in [
        ("7", 7),
        ("[MAX 2 9 [MIN 4 7 ] 0 ]", 9),
        ("[MIN 3 8 ]", 3),
        ("[MED 9 1 5 ]", 5),
        ("[MED 1 4 ]", 2),
        ("[MED 8 0 5 2 ]", 3),
        ("[SM 9 9 9 ]", 7),
        ("[SM [MAX 6 7 ] [MED 1 2 9 ] 1 ]", 0),
        ("[MIN [SM 5 5 ] [MAX 1 1 ] ]", 0),
    ] {
        let expression = Expression::parse(text).expect(text);
        assert_eq!(expression.value(), value, "{text}");
        assert_eq!(expression.to_string(), text);
        assert_eq!(expression.words(), text.split(' ').count());
    }
}

#[test]
fn what_is_no_expression_is_explained() {
    let refused = |text: &str| Expression::parse(text).unwrap_err().to_string();
    for (text, why) in [
        ("[MAX 1 12 ]", "word 2, \"12\": it is no digit"),
        ("[AVG 1 ]", "word 0, \"[AVG\": no operation is called that"),
        ("[MAX ]", "word 1, \"]\": the list is empty"),
        ("]", "word 0, \"]\": no list is open"),
        ("1 2", "word 1, \"2\": the expression is over before it"),
        ("[MAX 1", "word 2, \"\": the expression is not over"),
        ("", "word 0, \"\": the expression is not over"),
    ] {
        assert_eq!(refused(text), why);
    }
}

/// The value by replacing innermost brackets, from a text to a text: shares nothing with
/// [`Expression`].
fn reduced(text: &str) -> u32 {
    let mut words: Vec<String> = text.split(' ').map(str::to_owned).collect();
    while words.len() > 1 {
        let close = words.iter().position(|word| word == "]").unwrap();
        let open = words[..close]
            .iter()
            .rposition(|word| word.starts_with('['))
            .unwrap();
        let mut digits: Vec<u32> = words[open + 1..close]
            .iter()
            .map(|word| word.parse().unwrap())
            .collect();
        digits.sort();
        let last = digits.len() - 1;
        let value = match words[open].as_str() {
            "[MAX" => digits[last],
            "[MIN" => digits[0],
            "[MED" => (digits[last / 2] + digits[last.div_ceil(2)]) / 2,
            "[SM" => digits.iter().sum::<u32>() % 10,
            other => panic!("{other}"),
        };
        words.splice(open..=close, [value.to_string()]);
    }
    words[0].parse().unwrap()
}

#[test]
fn every_label_is_the_value() {
    let task = ListOps::new()
        .with_depth(5)
        .with_arguments(6)
        .with_lengths(10, 80);
    let drawn = task.generate(Counts::new(1500, 100), 3).unwrap();
    let mut lengths = [0; 81];
    let mut deepest = 0;
    let mut labels = [0; 10];
    for example in drawn.train.iter().chain(&drawn.valid) {
        let value = reduced(&example.text);
        assert_eq!(example.label, value.to_string(), "{}", example.text);
        labels[value as usize] += 1;
        let expression = Expression::parse(&example.text).unwrap();
        assert!((1..=5).contains(&expression.depth()), "{}", example.text);
        deepest = deepest.max(expression.depth());
        lengths[expression.words()] += 1;
    }
    assert_eq!(lengths[..10], [0; 10]);
    assert!(lengths[70..].iter().sum::<i32>() > 50, "{lengths:?}");
    assert_eq!(deepest, 5);
    // MAX and MIN favour 9 and 0; no label is rare.
    assert!(labels.iter().all(|count| *count > 40), "{labels:?}");
}
