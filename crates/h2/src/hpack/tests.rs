//! The examples of RFC 7541 appendix C, and damaged blocks.

use super::{Decoder, HpackError, Step, encode};
use lacquer_testing::{Random, rounds};

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter_map(|b| (b as char).to_digit(16)).map(|d| d as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn fields(decoder: &mut Decoder, mut input: &[u8]) -> Result<Vec<String>, HpackError> {
    let (mut lines, mut out) = (Vec::new(), [0; 4096]);
    decoder.begin();
    loop {
        match decoder.next(&mut input, &mut out)? {
            Step::Field(line) => {
                assert_eq!(&out[line.name_len..line.name_len + 2], b": ");
                lines.push(String::from_utf8_lossy(&out[..line.len]).into_owned());
            }
            Step::End => return Ok(lines),
            step => panic!("{step:?}"),
        }
    }
}

fn check(table_size: usize, blocks: &[(&str, &[&str], usize)]) {
    let mut decoder = Decoder::new(table_size);
    for &(block, expected, size) in blocks {
        assert_eq!(fields(&mut decoder, &unhex(block)).unwrap(), expected);
        assert_eq!(decoder.table().size(), size);
    }
}

#[test]
fn literals_and_indexed_fields_are_decoded() {
    check(
        4096,
        &[
            (
                "400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572",
                &["custom-key: custom-header"],
                55,
            ),
            ("040c 2f73 616d 706c 652f 7061 7468", &[":path: /sample/path"], 55),
            ("1008 7061 7373 776f 7264 0673 6563 7265 74", &["password: secret"], 55),
            ("82", &[":method: GET"], 55),
        ],
    );
}

const FIRST: &[&str] = &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com"];
const SECOND: &[&str] =
    &[":method: GET", ":scheme: http", ":path: /", ":authority: www.example.com", "cache-control: no-cache"];
const THIRD: &[&str] = &[
    ":method: GET",
    ":scheme: https",
    ":path: /index.html",
    ":authority: www.example.com",
    "custom-key: custom-value",
];

#[test]
fn requests_without_huffman_code_are_decoded() {
    check(
        4096,
        &[
            ("8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d", FIRST, 57),
            ("8286 84be 5808 6e6f 2d63 6163 6865", SECOND, 110),
            ("8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65", THIRD, 164),
        ],
    );
}

#[test]
fn requests_in_huffman_code_are_decoded() {
    check(
        4096,
        &[
            ("8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff", FIRST, 57),
            ("8286 84be 5886 a8eb 1064 9cbf", SECOND, 110),
            ("8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf", THIRD, 164),
        ],
    );
}

const RESPONSE_1: &[&str] = &[
    ":status: 302",
    "cache-control: private",
    "date: Mon, 21 Oct 2013 20:13:21 GMT",
    "location: https://www.example.com",
];
const RESPONSE_2: &[&str] = &[
    ":status: 307",
    "cache-control: private",
    "date: Mon, 21 Oct 2013 20:13:21 GMT",
    "location: https://www.example.com",
];
const RESPONSE_3: &[&str] = &[
    ":status: 200",
    "cache-control: private",
    "date: Mon, 21 Oct 2013 20:13:22 GMT",
    "location: https://www.example.com",
    "content-encoding: gzip",
    "set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
];

#[test]
fn responses_with_eviction_are_decoded() {
    check(
        256,
        &[
            (
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133
                 2032 303a 3133 3a32 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70
                 6c65 2e63 6f6d",
                RESPONSE_1,
                222,
            ),
            ("4803 3330 37c1 c0bf", RESPONSE_2, 222),
            (
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d
                 54c0 5a04 677a 6970 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049
                 5541 5851 5745 4f49 553b 206d 6178 2d61 6765 3d33 3630 303b 2076 6572 7369 6f6e
                 3d31",
                RESPONSE_3,
                215,
            ),
        ],
    );
    check(
        256,
        &[
            (
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6
                 2d1b ff6e 919d 29ad 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                RESPONSE_1,
                222,
            ),
            ("4883 640e ffc1 c0bf", RESPONSE_2, 222),
            (
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab
                 77ad 94e7 821d d7f2 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f
                 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
                RESPONSE_3,
                215,
            ),
        ],
    );
}

#[test]
fn invalid_sizes_and_numbers_are_rejected() {
    let mut decoder = Decoder::new(4096);
    assert_eq!(fields(&mut decoder, &unhex("4001 6101 62")).unwrap(), ["a: b"]);
    assert_eq!(fields(&mut decoder, &unhex("20 3f e11f be")), Err(HpackError::Index));
    assert_eq!(fields(&mut decoder, &unhex("3f e21f")), Err(HpackError::Update));
    assert_eq!(fields(&mut decoder, &unhex("82 20")), Err(HpackError::Update));
    assert_eq!(fields(&mut decoder, &unhex("80")), Err(HpackError::Index));
    assert_eq!(fields(&mut decoder, &unhex("ff ffff ffff ff")), Err(HpackError::Integer));
}

#[test]
fn an_incomplete_field_or_a_small_buffer_consumes_nothing() {
    let mut block = Vec::new();
    encode::remembered(&mut block, b"user-agent", b"something of some length");
    for cut in 1..block.len() {
        let (mut decoder, mut input, mut out) = (Decoder::new(4096), &block[..cut], [0; 64]);
        let Step::More { needed } = decoder.next(&mut input, &mut out).unwrap() else { panic!("{cut}") };
        assert!(needed > cut && needed <= block.len());
        assert_eq!((input.len(), decoder.table().count()), (cut, 0));
    }
    let line = "user-agent: something of some length";
    for len in 0..line.len() {
        let (mut decoder, mut input) = (Decoder::new(4096), &block[..]);
        assert_eq!(decoder.next(&mut input, &mut vec![0; len]), Ok(Step::Full));
        assert_eq!(decoder.table().count(), 0);
        let enough = decoder.field_size_bound(input);
        assert!(matches!(decoder.next(&mut input, &mut vec![0; enough]), Ok(Step::Field(_))));
        assert_eq!((input.len(), decoder.table().count()), (0, 1));
    }
}

#[test]
fn damaged_blocks_stay_within_bounds() {
    let mut random = Random(7);
    let mut seed = Vec::new();
    for (name, value) in [(&b"accept"[..], &b"text/html"[..]), (b"x-a", b"\0\xff"), (b"cookie", b"a=b")] {
        encode::remembered(&mut seed, name, value);
        encode::field(&mut seed, name, value);
    }
    encode::indexed(&mut seed, 62);
    for _ in 0..rounds(50_000) {
        let mut block = seed.clone();
        for _ in 0..=random.below(3) {
            let at = random.index(block.len());
            block[at] = random.number() as u8;
        }
        block.truncate(random.index(block.len()) + 1);
        let (mut decoder, mut input, mut out) = (Decoder::new(128), &block[..], [0; 256]);
        while let Ok(Step::Field(line)) = decoder.next(&mut input, &mut out) {
            assert!(line.name_len + 2 <= line.len);
            assert!(decoder.table().size() <= 128 && decoder.table().memory() <= 256);
        }
    }
}
