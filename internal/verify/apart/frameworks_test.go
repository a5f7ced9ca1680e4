package apart

const (
	ginFile, ginWriter            = "ginlimit/middleware.go", "ginlimit/writer.go"
	echoFile, echo4File           = "echolimit/middleware.go", "echolimit/echo4/middleware.go"
	fiberFile, fiberExchange      = "fiberlimit/middleware.go", "fiberlimit/exchange.go"
	fiberRouter                   = "fiberlimit/router.go"
	connectFile, connectExchange  = "connectlimit/interceptor.go", "connectlimit/exchange.go"
	connectDenial, connectRouting = "connectlimit/denial.go", "connectlimit/check.go"
)

var frameworkMutants = []mutant{
	{ginFile, "\t\t\tc.Abort()\n", "", "TestDenied", "gin: a denied request goes no further"},
	{ginFile, "\t\t\tfail(c, err)\n", "\t\t\t_ = err\n", "TestDenied", "gin: the error of Denied reaches the handlers further out"},
	{ginFile, "paths = append(paths, route.Path)", "paths = append(paths, route.Method)", "TestCheck", "gin: endpoints are paths"},
	{ginFile, "return m.adapter.CheckRules(func() []string { return routes(engine) })",
		"given := routes(engine)\n\treturn m.adapter.CheckRules(func() []string { return given })", "TestCheck",
		"gin: routes may be added later"},
	{ginFile, "return c.Request.Method + \" \" + path", "return path", "TestFrameworks/endpoints_with_methods",
		"gin: Pattern has the method"},
	{ginFile, "if !counted.Written() && len(c.Errors) > 0 {", "if false {", "TestErrors",
		"gin: a handler further out answers for an error"},
	{ginWriter, "Write(p []byte) (int, error) {\n\tw.commit()\n", "Write(p []byte) (int, error) {\n", "TestWriter",
		"gin: Write sends a status"},
	{ginWriter, "WriteString(s string) (int, error) {\n\tw.commit()\n", "WriteString(s string) (int, error) {\n", "TestWriter",
		"gin: WriteString sends a status"},
	{ginWriter, "WriteHeaderNow() {\n\tw.commit()\n", "WriteHeaderNow() {\n", "TestWriter", "gin: WriteHeaderNow sends a status"},
	{ginWriter, "Flush() {\n\tw.commit()\n", "Flush() {\n", "TestWriter", "gin: Flush sends a status"},
	{ginWriter, "if err == nil {", "if err != nil {", "TestHijack", "gin: a connection that is taken over has its status"},

	{echoFile, "\t\twatch(c, settle)\n", "", "TestErrors", "echo: the status that is sent counts"},
	{echoFile, "if err == nil {\n\t\t\tsettle", "if true {\n\t\t\tsettle", "TestErrors", "echo: an error is no success"},
	{echoFile, "c.SetResponse(httplimit.CountStatus(c.Response(), settle))", "_ = settle", "TestReplacedResponse",
		"echo: the Response of another middleware is watched"},
	{echoFile, ", route.Method == echo.RouteNotFound:", ":", "TestEndpoints", "echo: the 404 of a group is no route"},
	{echoFile, ", route.Name == echo.MethodNotAllowedRouteName:", ":", "TestEndpoints", "echo: a 405 is no route"},
	{echoFile, "case route.Method == echo.RouteAny:", "case false:", "TestEndpoints",
		"echo: a route for any method has none in its name"},
	{echoFile, "return route.Method + \" \" + c.Path()", "return c.Request().Method + \" \" + c.Path()", "TestAutomaticHead",
		"echo: an automatic HEAD is the GET of its route"},
	{echoFile, "return m.adapter.CheckRules(func() []string { return routes(e) })",
		"given := routes(e)\n\treturn m.adapter.CheckRules(func() []string { return given })", "TestCheck",
		"echo: routes may be added later"},

	{echo4File, "\t\t\twatch(c, settle)\n", "", "TestErrors", "echo 4: the status that is sent counts"},
	{echo4File, "if settle != nil && err == nil {", "if settle != nil {", "TestErrors", "echo 4: an error is no success"},
	{echo4File, "r.Pattern = route //", "_ = route //", "TestPre", "echo 4: the log tells of Pre"},
	{echo4File, "c.Get(echo.ContextKeyHeaderAllow) != nil || ", "", "TestEndpoints", "echo 4: a 405 is no route"},
	{echo4File, "case !methods[c.Request().Method]:", "case false:", "TestEndpoints",
		"echo 4: methods that clients invent are not in names"},
	{echo4File, "return m.adapter.CheckRules(func() []string { return routes(e) })",
		"given := routes(e)\n\treturn m.adapter.CheckRules(func() []string { return given })", "TestCheck",
		"echo 4: routes may be added later"},

	{fiberFile, "strings.Clone(name)", "name", "TestKept", "fiber: the client is copied"},
	{fiberFile, "strings.Clone(tier)", "tier", "TestKept", "fiber: the tier is copied"},
	{fiberFile, "strings.Clone(endpoint(c))", "endpoint(c)", "TestKept", "fiber: the endpoint is copied"},
	{fiberFile, "c.Denied, c.Blocked = withFields", "_, _ = withFields", "TestDenied", "fiber: Denied answers with the header fields"},
	{fiberFile, "c.SetContext(r.Context())", "_ = r", "TestMemory", "fiber: handlers get the Info"},
	{fiberFile, "if err != nil && c.App().ErrorHandler(c, err) != nil {", "if false {", "TestErrors",
		"fiber: the ErrorHandler sets the status"},
	{fiberFile, "settle(c.Response().StatusCode())", "settle(200)", "TestErrors", "fiber: the status that is sent counts"},
	{fiberRouter, "ok && known.(*router).handlers == app.HandlersCount()", "ok", "TestNewRoutes", "fiber: routes may be added later"},
	{fiberExchange, "\tclear(x.fields)\n", "", "TestFrameworks", "fiber: no response has the fields of another"},
	{fiberExchange, "\tclear(r.Header)\n", "", "TestFrameworks", "fiber: no request has the fields of another"},
	{fiberExchange, "x.peer, x.text = peer, \"\"", "x.peer = peer", "TestPeers", "fiber: no address has the text of another"},

	{connectFile, "if req.Spec().IsClient {", "if false {", "TestClients", "connect: calls of a client are not limited"},
	{connectFile, "\t\tmaps.Copy(x.response.Header(), x.fields)\n", "", "TestDenial", "connect: answers have the header fields"},
	{connectFile, "\t\tmaps.Copy(x.conn.ResponseHeader(), x.fields)\n", "", "TestStream", "connect: streams have the header fields"},
	{connectFile, "settle(statusOf(err))", "settle(200)", "TestCount", "connect: the code of the call counts"},
	{connectExchange, "outer != nil {", "outer != nil && false {", "TestLayers", "connect: two Interceptors share the header fields"},
	{connectDenial, "message = \"abnormal usage detected\"", "message = \"too many requests\"", "TestAnswers",
		"connect: a block says so"},
	{connectDenial, "case i.Status == http.StatusServiceUnavailable:", "case false:", "TestOutage", "connect: an outage is no quota"},
	{connectDenial, "wait != ratelimit.Never {", "wait == ratelimit.Never {", "TestDenial", "connect: a denial has a RetryInfo"},
	{connectDenial, "if len(quota.Violations) > 0 {", "if false {", "TestDenial", "connect: a denial names its rules"},
	{connectDenial, "if blocked {", "if false {", "TestAnswers", "connect: a block has an ErrorInfo"},
	{connectDenial, "err == nil && ended != nil {", "err == nil && ended != nil && false {", "TestOutage",
		"connect: an ended call keeps its code"},
	{connectDenial, "\tmaps.Copy(denied.Meta(), own.Meta())\n", "", "TestAnswers", "connect: the metadata of an own error stays"},
	{connectDenial, "denied := connect.NewError(own.Code(), own.Unwrap())", "denied := own", "TestAnswers",
		"connect: an own error is not changed"},
	{connectDenial, "http.StatusUnauthorized,", "http.StatusForbidden,", "TestCount", "connect: unauthenticated is 401"},
	{connectRouting, `"/%s/%s"`, `"%s/%s"`, "TestCheck", "connect: a procedure begins with a slash"},
}
