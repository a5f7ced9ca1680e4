package frameworks

import (
	"net/http"
	"regexp"
	"time"

	"github.com/gin-gonic/gin"

	"github.com/ratelimit-go/ratelimit"
	"github.com/ratelimit-go/ratelimit/ginlimit"
	"github.com/ratelimit-go/ratelimit/httplimit"
)

var parameter = regexp.MustCompile(`\{(\w+)\}`)

func init() { gin.SetMode(gin.ReleaseMode) }

// colons writes the parameters of a route with colons: /items/:id.
func colons(route string) string { return parameter.ReplaceAllString(route, ":$1") }

var onGin = framework{
	name:  "gin",
	spell: colons,
	build: func(s *service) (http.Handler, error) {
		m, err := ginlimit.New(s.limiter, s.ginConfig())
		if err != nil {
			return nil, err
		}
		router := gin.New()
		router.HandleMethodNotAllowed = true
		router.Use(func(c *gin.Context) { // the recovery, and the handler of errors: both stand outside of the limit
			defer func() {
				if recover() != nil {
					c.AbortWithStatus(http.StatusInternalServerError)
				}
			}()
			c.Next()
			if len(c.Errors) > 0 && !c.Writer.Written() {
				c.Data(http.StatusUnauthorized, "text/plain", []byte("wrong password"))
			}
		}, m.Handler())
		ginRoutes(s, m, router)
		return router, nil
	},
}

func (s *service) ginConfig() ginlimit.Config {
	o := &s.options
	c := ginlimit.Config{
		Proxies: o.proxies, Info: o.info, Headers: o.headers, SkipNetworks: o.skipNetworks, ShowShared: o.shared, Log: o.log,
	}
	if o.users {
		c.Client = func(c *gin.Context) (client, tier string, ok bool) { return user(c.GetHeader) }
	}
	if o.key {
		c.Client = ginlimit.APIKey("X-API-Key", find)
	}
	if o.count != nil {
		c.Count = func(_ *gin.Context, status int) bool { return o.count(status) }
	}
	if o.healthy {
		c.Skip = ginlimit.SkipPaths("/healthz")
	}
	if o.preflight {
		c.Skip = ginlimit.Preflight
	}
	if o.pattern {
		c.Endpoint = ginlimit.Pattern
	}
	if o.prepares() {
		c.Prepare = func(_ *gin.Context, q *ratelimit.Request) { o.prepare(q) }
	}
	if o.forgive {
		c.Error = func(*gin.Context, error) bool { return true }
	}
	if o.denied {
		c.Denied = func(c *gin.Context, _ *httplimit.Info) error {
			c.Data(420, "text/plain", []byte("slow down"))
			return nil
		}
	}
	if o.blocked {
		c.Blocked = func(c *gin.Context, _ *httplimit.Info) error {
			c.Data(http.StatusForbidden, "text/plain", []byte("go away"))
			return nil
		}
	}
	return c
}

func ginText(body string) gin.HandlerFunc {
	return func(c *gin.Context) { c.Data(http.StatusOK, "text/plain", []byte(body)) }
}

func ginRoutes(s *service, m *ginlimit.Middleware, router *gin.Engine) {
	router.GET("/items/:id", func(c *gin.Context) { ginText("item " + c.Param("id"))(c) })
	router.HEAD("/items/:id", func(c *gin.Context) { c.Status(http.StatusOK) })
	router.POST("/login", func(c *gin.Context) {
		switch c.GetHeader("X-Password") {
		case "right":
			ginText("welcome")(c)
		case "wrong":
			c.Data(http.StatusUnauthorized, "text/plain", []byte("wrong password"))
		default:
			_ = c.Error(http.ErrNoCookie)
		}
	})
	router.GET("/panic", func(*gin.Context) { panic("a bug") })
	router.GET("/stream", func(c *gin.Context) {
		_, _ = c.Writer.WriteString("one\n")
		c.Writer.Flush()
		<-s.release
		_, _ = c.Writer.WriteString("two\n")
	})
	router.GET("/slow", func(c *gin.Context) {
		s.running <- struct{}{}
		<-s.release
		ginText("done")(c)
	})
	router.GET("/empty", func(*gin.Context) {})
	router.GET("/info", func(c *gin.Context) { ginText(infoText(ginlimit.Info(c)))(c) })
	router.GET("/mail", func(c *gin.Context) {
		if m.Allow(c, mail) {
			ginText("sent")(c)
		}
	})
	router.GET("/job", func(c *gin.Context) {
		units, ok := m.Reserve(c, job, time.Minute)
		if !ok {
			return
		}
		_ = units.Settle(1)
		ginText("worked")(c)
	})
	router.GET("/healthz", ginText("healthy"))
	router.GET("/twice", m.Handler(), ginText("twice"))
}
