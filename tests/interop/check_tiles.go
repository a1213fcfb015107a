// Exports and proofs of Tacit in the hands of others: Go's sumdb/note and sumdb/tlog, and torchwood's
// client of c2sp.org/tlog-tiles, which reads an export over HTTP as a monitor would.
//
//	check_tiles VECTORS EXPORT[,RECEIPT]...
//
// VECTORS is what `test_merkle vectors` prints. Ends with "N passed, M failed".
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

var passed, failed int

func check(what string, err error) {
	if err == nil {
		passed++
		return
	}
	failed++
	fmt.Printf("FAILED %s: %v\n", what, err)
}

// --- proofs made by Tacit ---

func parseHash(text string) (h tlog.Hash, err error) {
	raw, err := hex.DecodeString(text)
	if err == nil && len(raw) != len(h) {
		err = errors.New("a hash of another size")
	}
	copy(h[:], raw)
	return h, err
}

func parseHashes(texts []string) (hashes []tlog.Hash, err error) {
	for _, text := range texts {
		h, err := parseHash(text)
		if err != nil {
			return nil, err
		}
		hashes = append(hashes, h)
	}
	return hashes, nil
}

// "inclusion SIZE INDEX ROOT LEAF PROOF..." or "consistency SIZE OLD ROOT OLDROOT PROOF..."
func checkVector(line string) error {
	words := strings.Fields(line)
	if len(words) < 5 {
		return errors.New("too short")
	}
	size, err1 := strconv.ParseInt(words[1], 10, 64)
	other, err2 := strconv.ParseInt(words[2], 10, 64)
	hashes, err3 := parseHashes(words[3:])
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	switch words[0] {
	case "inclusion":
		return tlog.CheckRecord(hashes[2:], size, hashes[0], other, hashes[1])
	case "consistency":
		return tlog.CheckTree(hashes[2:], size, hashes[0], other, hashes[1])
	}
	return fmt.Errorf("unknown kind %q", words[0])
}

func checkVectors(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	n := 0
	for ; lines.Scan(); n++ {
		if err := checkVector(lines.Text()); err != nil {
			return fmt.Errorf("line %d: %w", n+1, err)
		}
	}
	if n == 0 {
		return errors.New("there are none")
	}
	fmt.Printf("%d proofs hold\n", n)
	return lines.Err()
}

// --- exports ---

type export struct {
	dir      string
	verifier note.Verifier
	tree     tlog.Tree
	client   *torchwood.Client
	reader   tlog.HashReader
}

func logKey(dir string) (note.Verifier, error) {
	text, err := os.ReadFile(filepath.Join(dir, "keys.txt"))
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(text), "\n") {
		if key, ok := strings.CutPrefix(line, "log "); ok {
			return note.NewVerifier(key)
		}
	}
	return nil, errors.New("no log key in keys.txt")
}

func openCheckpoint(text []byte, v note.Verifier) (tlog.Tree, error) {
	signed, err := note.Open(text, note.VerifierList(v))
	if err != nil {
		return tlog.Tree{}, err
	}
	c, err := torchwood.ParseCheckpoint(signed.Text)
	if err == nil && c.Origin != v.Name() {
		err = fmt.Errorf("origin %q of the key of %q", c.Origin, v.Name())
	}
	return c.Tree, err
}

func openExport(dir, url string) (*export, error) {
	v, err := logKey(dir)
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, "checkpoint"))
	if err != nil {
		return nil, err
	}
	e := &export{dir: dir, verifier: v}
	if e.tree, err = openCheckpoint(text, v); err != nil {
		return nil, err
	}
	fetcher, err := torchwood.NewTileFetcher(url)
	if err != nil {
		return nil, err
	}
	e.reader = torchwood.TileHashReaderWithContext(context.Background(), e.tree, fetcher)
	e.client, err = torchwood.NewClient(fetcher)
	return e, err
}

// Every entry in order; the client checks each against the tree.
func (e *export) readAll() error {
	next := int64(0)
	for next < e.tree.N {
		from := next
		for i, entry := range e.client.Entries(context.Background(), e.tree, next) {
			if i != next || len(entry) == 0 {
				return fmt.Errorf("entry %d of %d bytes where %d was expected", i, len(entry), next)
			}
			next++
		}
		if err := e.client.Err(); err != nil {
			return err
		}
		if next == from {
			return fmt.Errorf("the entries end at %d of %d", next, e.tree.N)
		}
	}
	return nil
}

// The trees before this one are prefixes of it, by the tiles alone.
func (e *export) growth() error {
	for old := int64(1); old <= e.tree.N; old += 1 + e.tree.N/50 {
		root, err := tlog.TreeHash(old, e.reader)
		if err != nil {
			return err
		}
		proof, err := tlog.ProveTree(e.tree.N, old, e.reader)
		if err != nil {
			return err
		}
		if err := tlog.CheckTree(proof, e.tree.N, e.tree.Hash, old, root); err != nil {
			return err
		}
	}
	return nil
}

func (e *export) places() error {
	for i := int64(0); i < e.tree.N; i += 1 + e.tree.N/50 {
		entry, proof, err := e.client.Entry(context.Background(), e.tree, i)
		if err != nil {
			return err
		}
		if err := tlog.CheckRecord(proof, e.tree.N, e.tree.Hash, i, tlog.RecordHash(entry)); err != nil {
			return err
		}
	}
	return nil
}

// --- receipts: proto/receipt.proto, of which numbers and bytes are all ---

type receipt struct {
	index      int64
	entry      []byte
	checkpoint []byte
	proof      tlog.RecordProof
}

func parseReceipt(raw []byte) (r receipt, err error) {
	for len(raw) > 0 {
		tag, n := binary.Uvarint(raw)
		if n <= 0 {
			return r, errors.New("malformed tag")
		}
		value, m := binary.Uvarint(raw[n:])
		if m <= 0 {
			return r, errors.New("malformed field")
		}
		raw = raw[n+m:]
		if tag&7 == 0 {
			if tag>>3 == 3 {
				r.index = int64(value)
			}
			continue
		}
		if tag&7 != 2 || value > uint64(len(raw)) {
			return r, errors.New("malformed bytes")
		}
		field := raw[:value]
		raw = raw[value:]
		switch tag >> 3 {
		case 2:
			r.entry = field
		case 4:
			r.proof = append(r.proof, tlog.Hash(field))
		case 5:
			r.checkpoint = field
		}
	}
	return r, nil
}

// By itself, and as an entry of the export.
func (e *export) holds(name string) error {
	raw, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	r, err := parseReceipt(raw)
	if err != nil {
		return err
	}
	tree, err := openCheckpoint(r.checkpoint, e.verifier)
	if err != nil {
		return err
	}
	err = tlog.CheckRecord(r.proof, tree.N, tree.Hash, r.index, tlog.RecordHash(r.entry))
	if err != nil {
		return err
	}
	root, err := tlog.TreeHash(tree.N, e.reader)
	if err == nil && root != tree.Hash {
		err = errors.New("its tree is not the export's")
	}
	if err != nil {
		return err
	}
	entry, _, err := e.client.Entry(context.Background(), e.tree, r.index)
	if err == nil && !bytes.Equal(entry, r.entry) {
		err = errors.New("the export has another entry there")
	}
	return err
}

func checkExport(dir string, receipts []string) {
	server := httptest.NewServer(http.FileServer(http.Dir(dir)))
	defer server.Close()
	e, err := openExport(dir, server.URL)
	check(dir+": checkpoint", err)
	if err != nil {
		return
	}
	check(dir+": entries", e.readAll())
	check(dir+": consistency", e.growth())
	check(dir+": inclusion", e.places())
	for _, name := range receipts {
		check(name, e.holds(name))
	}
	fmt.Printf("%s: %d entries read\n", dir, e.tree.N)
}

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "usage: check_tiles VECTORS EXPORT[,RECEIPT]...")
		os.Exit(2)
	}
	check("vectors", checkVectors(os.Args[1]))
	for _, argument := range os.Args[2:] {
		names := strings.Split(argument, ",")
		checkExport(names[0], names[1:])
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	if failed > 0 {
		os.Exit(1)
	}
}
