package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"github.com/gorilla/websocket"

	"millrace/internal/wire"
)

// plainRound makes rounds of a WebSocket in plain mode, with frames of so many bytes.
func plainRound(policy string, size int) func(context.Context, *visitor, *rand.Rand) error {
	frame := make([]byte, size)
	return func(ctx context.Context, v *visitor, rng *rand.Rand) error {
		c, resp, err := websocket.DefaultDialer.DialContext(ctx, "ws://"+v.http+"/v2/models/"+v.account.model+
			"/stream?codec=opaque&outputs=binary&policy="+policy, nil)
		if err != nil {
			if resp != nil {
				text, _ := io.ReadAll(io.LimitReader(resp.Body, 1024))
				err = fmt.Errorf("%w: %s: %s", err, resp.Status, text)
			}
			return err
		}
		defer c.Close()
		n := frames(rng)
		told := 0
		read := make(chan error, 1)
		go func() { // ends with the connection
			var err error
			told, err = v.endings(c, n)
			read <- err
		}()
		sent := 0
		for range n {
			pace(ctx, rng)
			v.account.send()
			sent++
			if err := c.WriteMessage(websocket.BinaryMessage, frame); err != nil {
				break // the reader has the reason
			}
		}
		if err := <-read; err != nil {
			v.account.lose(sent - told)
			return err
		}
		_ = c.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""),
			time.Now().Add(time.Second))
		_, _, _ = c.ReadMessage() // the server's close
		return nil
	}
}

// endings waits for n endings, and returns the number received.
func (v *visitor) endings(c *websocket.Conn, n int) (told int, err error) {
	for ; told < n; told++ {
		_ = c.SetReadDeadline(time.Now().Add(patience))
		kind, text, err := c.ReadMessage()
		if err != nil {
			_ = c.Close() // the sender ends, too
			return told, fmt.Errorf("ending %d of %d: %w", told+1, n, err)
		}
		if kind == websocket.BinaryMessage {
			v.account.answer()
			continue
		}
		var m wire.Plain
		if err := json.Unmarshal(text, &m); err != nil || m.Seq == nil {
			_ = c.Close()
			return told, fmt.Errorf("ending %d of %d: %.300s", told+1, n, text)
		}
		switch {
		case m.Dropped != "":
			v.account.drop(m.Dropped)
		case m.Error != nil:
			v.account.fail(m.Error.Code)
		default:
			v.account.answer()
		}
	}
	return told, nil
}
