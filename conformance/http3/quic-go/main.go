// A client of HTTP/3 by quic-go, for conformance/http3-clients. Prints a line for each case.
package main

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go/http3"
)

var (
	client *http.Client
	base   string
	failed bool
)

func page(size int) []byte {
	body := make([]byte, size)
	for at := range body {
		body[at] = byte(at % 251)
	}
	return body
}

func report(name string, isRight bool, seen ...any) {
	if isRight {
		fmt.Println("ok", name)
	} else {
		failed = true
		fmt.Println("FAIL", name, seen)
	}
}

// send returns the response and its body. The status is 0 if the exchange failed.
func send(method, path string, fields map[string]string, body io.Reader) (*http.Response, []byte) {
	nothing := &http.Response{Header: http.Header{}}
	request, err := http.NewRequest(method, base+path, body)
	if err != nil {
		return nothing, []byte(err.Error())
	}
	request.Header.Set("Accept-Encoding", "identity")
	for name, value := range fields {
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		return nothing, []byte(err.Error())
	}
	defer response.Body.Close()
	received, err := io.ReadAll(response.Body)
	if err != nil {
		return nothing, []byte(err.Error())
	}
	return response, received
}

func pages() {
	for _, size := range []int{0, 1, 100, 5000, 100_000, 3_000_000} {
		for _, kind := range []string{"", "", "/private"} {
			path := fmt.Sprintf("/%d%s", size, kind)
			response, body := send("GET", path, nil, nil)
			report("GET "+path, response.StatusCode == 200 && bytes.Equal(body, page(size)), response.StatusCode)
		}
	}
	response, body := send("HEAD", "/100", nil, nil)
	report("HEAD", response.StatusCode == 200 && response.ContentLength == 100 && len(body) == 0, response.StatusCode)
	response, body = send("GET", "/100000", map[string]string{"Range": "bytes=5-9"}, nil)
	report("range", response.StatusCode == 206 && bytes.Equal(body, page(10)[5:]), response.StatusCode)
	response, _ = send("GET", "/facts", map[string]string{"Cookie": "a=b; c=d"}, nil)
	isRight := response.Header.Get("X-Proto") == "HTTP/3.0" && response.Header.Get("X-Cookie") == "a=b; c=d"
	report("facts", isRight, response.Header)
}

func bodies() {
	for _, size := range []int{1, 1000, 1_000_000} {
		sent := page(size)
		response, body := send("POST", "/echo", nil, bytes.NewReader(sent))
		report(fmt.Sprintf("POST %d", size), bytes.Equal(body, sent), response.StatusCode, len(body))
		response, body = send("POST", "/echo", nil, io.MultiReader(bytes.NewReader(sent)))
		report(fmt.Sprintf("POST %d without a length", size), bytes.Equal(body, sent), response.StatusCode, len(body))
	}
}

func manyAtOnce() {
	var right atomic.Int32
	var all sync.WaitGroup
	for at := range 1000 {
		all.Go(func() {
			size := 100 + at%50
			if _, body := send("GET", fmt.Sprintf("/%d", size), nil, nil); bytes.Equal(body, page(size)) {
				right.Add(1)
			}
		})
	}
	all.Wait()
	report("1000 requests at once", right.Load() == 1000, right.Load())
}

func cancelled() {
	for range 20 {
		response, err := client.Get(base + "/3000000")
		if err != nil {
			report("cancelled", false, err)
			return
		}
		_, _ = io.ReadFull(response.Body, make([]byte, 10))
		response.Body.Close()
	}
	response, _ := send("GET", "/100", nil, nil)
	report("after cancelled responses", response.StatusCode == 200, response.StatusCode)
}

func main() {
	base = "https://127.0.0.1:" + os.Args[1]
	config := &tls.Config{InsecureSkipVerify: true, ServerName: "example.test"}
	transport := &http3.Transport{TLSClientConfig: config}
	client = &http.Client{Transport: transport, Timeout: 60 * time.Second}
	pages()
	bodies()
	manyAtOnce()
	cancelled()
	transport.Close()
	if failed {
		os.Exit(1)
	}
}
