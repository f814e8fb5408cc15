// Command quantity-golden writes the tables by which crates/quantity is compared with the quantities of Kubernetes:
//
//	go run . ../../crates/quantity/tests/golden
//
// It writes quantities.tsv (what is written, what the API server prints of it, its canonical form, its nanos) and sums.tsv (two
// quantities, their sum, their difference, and how they compare). A text that is refused has "!" in all other columns.
package main

import (
	"bufio"
	"fmt"
	"log"
	"math/big"
	"math/rand"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// How many quantities and pairs are made up, beside those that are written down here.
const (
	randomQuantities = 400
	randomPairs      = 400
)

var (
	signs    = []string{"", "-", "+"}
	suffixes = []string{
		"", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei", "e0", "e3", "E3", "e-3", "e1", "e-7", "E+2", "e9",
	}
	numbers = []string{"0", "1", "5", "10", "100", "999", "1000", "1023", "1024", "1025", "2048", "0.5", "1.5", "1.001", ".25", "7."}
)

// written are texts with something special about them.
var written = []string{
	// What people write by mistake.
	"", " ", " 1", "1 ", "4 Gi", "1,5", "1_000", "1K", "1ki", "1KI", "1gi", "1GB", "4gb", "1GiB", "1mi", "1b", "1i", "1e", "1E", "1ee3", "1e3.5",
	"1.2.3", "--1", "+-1", "1-", "1+", "0x10", "١", "1e5m", "5Mi5", "1kk", "1mm", "1nn", "half", "NaN", "Inf", "1d", "1h", "1%", "$1", "1k ",
	// No digits: nothing was written, and the API server reads zero.
	".", "+", "-", "m", "Ki", "-.m", "e3",
	// Texts that the API server prints as they were written.
	"+1", "01", "0001Ki", "1.500", "1000.500", "1.", "1e03", "1E3", "-01.250",
	// The ends of what is represented.
	"1n", "0.1n", "0.9n", "1.1n", "-0.1n", "-1.1n", "0.0000000001", "0.0000000009", "1.0000000001", "1e-9", "1e-10", "1e-30", "-1e-30", "0e-30",
	"0.00000000000000000000000000000000000000000000000000000000000000000001",
	"0.000000001Ki", "0.0000000001Ki", "0.1Ki", "0.3Mi", "-0.3Mi", "1.1Ei", "0.1Ei", "0.000000000000000000001Ei", "0.0009765625Ki", "0.00097656251Ki",
	"1.00000000000000000000000000000000000000000000000000000000000000000001Ki",
	"9223372036854775807", "9223372036854775808", "-9223372036854775808", "-9223372036854775809", "9223372036854775807m", "92233720368547758079",
	"7Ei", "7.9Ei", "7.99999999999999999999Ei", "8Ei", "-8Ei", "9Ei", "1024Ei", "8191Pi", "8192Pi", "9007199254740991Ki", "9007199254740992Ki",
	"9007199254740991.99902343750001Ki",
	"999E", "999.999999999999999999E", "999.9999999999999999999999999999E", "1000E", "-1000E", "1001E", "1e20", "1e21", "999e18", "1e22", "1e30", "1e300",
	"999999999999999999999", "1000000000000000000000", "999999999999999999999.999999999", "999999999999999999999.9999999991",
	"123456789012345678901234567890", "0e4", "0e99", "-0", "-0Ki", "+0.000m", "00", "000.000Mi",
	"123456789.123456789", "123456789.1234567891", "1152921504606846976", "1152921504606846977", "1536Mi", "1.5Gi", "1000Ki", "1024Mi", "1000000Ki",
}

// unitsOf is the amount in nanos, the smallest unit.
func unitsOf(q resource.Quantity) string {
	copied := q.DeepCopy()
	dec := copied.AsDec()
	nanos := new(big.Int).Set(dec.UnscaledBig())
	shift := 9 - int64(dec.Scale())
	factor := new(big.Int).Exp(big.NewInt(10), big.NewInt(abs(shift)), nil)
	if shift >= 0 {
		return nanos.Mul(nanos, factor).String()
	}
	rest := new(big.Int)
	nanos.QuoRem(nanos, factor, rest)
	if rest.Sign() != 0 {
		log.Fatalf("%s is no whole number of nanos", q.String())
	}
	return nanos.String()
}

func abs(n int64) int64 {
	if n < 0 {
		return -n
	}
	return n
}

// canonical is what is printed of an amount that was calculated and not read.
func canonical(q resource.Quantity) string {
	copied := q.DeepCopy()
	copied.Neg() // forgets the text that it was read from
	copied.Neg()
	return copied.String()
}

func row(text string) string {
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return strings.Join([]string{text, "!", "!", "!"}, "\t")
	}
	return strings.Join([]string{text, q.String(), canonical(q), unitsOf(q)}, "\t")
}

func pairRow(left, right string) string {
	a, b := resource.MustParse(left), resource.MustParse(right)
	sum, difference := a.DeepCopy(), a.DeepCopy()
	sum.Add(b)
	difference.Sub(b)
	return fmt.Sprintf("%s\t%s\t%s\t%s\t%d", left, right, sum.String(), difference.String(), a.Cmp(b))
}

// random is a text with at most digits digits on either side of the point.
func random(rng *rand.Rand, digits int) string {
	var text strings.Builder
	text.WriteString(signs[rng.Intn(2)])
	text.WriteString(number(rng, 1+rng.Intn(digits)))
	if rng.Intn(2) == 0 {
		text.WriteByte('.')
		text.WriteString(number(rng, rng.Intn(digits+1)))
	}
	text.WriteString(suffixes[rng.Intn(len(suffixes))])
	return text.String()
}

func number(rng *rand.Rand, digits int) string {
	text := make([]byte, digits)
	for at := range text {
		text[at] = byte('0' + rng.Intn(10))
	}
	return string(text)
}

func quantities(rng *rand.Rand) []string {
	var rows []string
	for _, text := range written {
		rows = append(rows, row(text))
	}
	for at, number := range numbers {
		for _, suffix := range suffixes {
			rows = append(rows, row(signs[at%2]+number+suffix))
		}
	}
	for range randomQuantities {
		rows = append(rows, row(random(rng, 12)))
	}
	return rows
}

func sums(rng *rand.Rand) []string {
	var rows []string
	ends := []string{"0", "0Ki", "0e3", "1", "-1", "1n", "1Ki", "1e3", "1500m", "0.5Ki", "0.0001Ki", "1023", "1Gi", "1G", "-1Gi", "9223372036854775807", "7Ei"}
	for _, left := range ends {
		for _, right := range ends {
			rows = append(rows, pairRow(left, right))
		}
	}
	for range randomPairs {
		left := random(rng, 9)
		right := random(rng, 9)
		rows = append(rows, pairRow(left, right))
	}
	return rows
}

func write(path string, rows []string) {
	file, err := os.Create(path)
	if err != nil {
		log.Fatal(err)
	}
	buffer := bufio.NewWriter(file)
	for _, row := range rows {
		fmt.Fprintln(buffer, row)
	}
	if err := buffer.Flush(); err != nil {
		log.Fatal(err)
	}
	if err := file.Close(); err != nil {
		log.Fatal(err)
	}
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: quantity-golden FOLDER")
	}
	rng := rand.New(rand.NewSource(1))
	write(filepath.Join(os.Args[1], "quantities.tsv"), quantities(rng))
	write(filepath.Join(os.Args[1], "sums.tsv"), sums(rng))
}
